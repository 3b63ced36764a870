"""The libraries that the operators' tests run with: compiled for this processor, and emulated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qwink import native
from tests.native.emulation.build import build, why_not
from tests.native.nodes import choose, supported

SETS = ("amx", "avx512", "avxvnni", "avx2")


@pytest.fixture(scope="session")
def emulated_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All sets of kernels, on any processor with AVX2: see `emulation/avx512.h`."""
    if reason := why_not():
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("emulated"))


@pytest.fixture(params=SETS)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library that uses one set of kernels: compiled where the processor runs it, or emulated."""
    path = native.LIBRARY
    if request.param not in supported(path):
        path = request.getfixturevalue("emulated_library")
        if request.param not in supported(path):
            pytest.skip(f"no kernels {request.param}")
    assert choose(path, request.param)
    monkeypatch.setattr(native, "LIBRARY", path)
    yield path
    assert choose(path, None)
