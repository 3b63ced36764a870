"""The libraries that the operators' tests run with: compiled for this processor, and emulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwink import native
from qwink.native import best_kernels
from tests.native.emulation.build import build, why_not


@pytest.fixture(scope="session")
def emulated_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels for AVX-512 and AMX, on any processor: see `emulation/avx512.h`."""
    if reason := why_not():
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("emulated"))


@pytest.fixture(params=["compiled", "emulated"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operators as this processor runs them, then all sets of kernels in emulation."""
    if request.param == "compiled":
        if best_kernels() == "onnxruntime":
            pytest.skip("this processor does not run our kernels")
        return native.LIBRARY
    path: Path = request.getfixturevalue("emulated_library")
    monkeypatch.setattr(native, "LIBRARY", path)
    monkeypatch.setattr(native, "best_kernels", lambda: "amx")
    return path
