"""The libraries that the operators' tests run with: compiled for this processor, and emulated."""

from __future__ import annotations

import os
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


@pytest.fixture(scope="session")
def compiled_library() -> Path:
    """The kernels for this processor; those that `make sanitize` compiled, where it runs."""
    return Path(os.environ.get("QWINK_TEST_LIBRARY", native.LIBRARY))


@pytest.fixture(params=SETS)
def library(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, compiled_library: Path
) -> Iterator[Path]:
    """A library that uses one set of kernels: compiled where the processor runs it, or emulated."""
    path = compiled_library
    if request.param not in supported(path):
        path = request.getfixturevalue("emulated_library")
        if request.param not in supported(path):
            pytest.skip(f"no kernels {request.param}")
    assert choose(path, request.param)
    monkeypatch.setattr(native, "LIBRARY", path)
    yield path
    assert choose(path, None)


@pytest.fixture
def any_library(request: pytest.FixtureRequest, compiled_library: Path) -> Path:
    """For what does not depend on the set: the fastest that this processor runs, or emulation."""
    if supported(compiled_library):
        return compiled_library
    path: Path = request.getfixturevalue("emulated_library")
    return path
