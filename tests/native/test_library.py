"""What this machine computes with, and what is said if that is not the fastest."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qwink import native
from qwink.engine.onnx import OnnxEngine
from qwink.errors import ArtifactError
from qwink.export.build import export
from qwink.export.recipe import RECIPES
from qwink.native import LAYOUTS, NATIVE_LAYOUT, cache_type, capabilities, choose_kernels, processor

HERE = capabilities()
with_kernels = pytest.mark.skipif(not HERE.supported, reason="no kernels of ours run here")


@with_kernels
def test_the_fastest_kernels_are_used() -> None:
    assert HERE.kernels == HERE.supported[0]
    assert HERE.layouts == LAYOUTS
    assert HERE.advice == ""
    assert HERE.cheap_rows >= 1
    assert HERE.kernels_of(NATIVE_LAYOUT) == HERE.kernels
    assert HERE.kernels_of("onnxruntime") == "onnxruntime"


@with_kernels
def test_chosen_kernels_are_used_until_they_are_given_up() -> None:
    for name in HERE.supported:
        choose_kernels(name)
        try:
            found = capabilities()
        finally:
            choose_kernels(None)
        assert (found.kernels, found.supported) == (name, HERE.supported)
        assert (found.advice == "") == (name == HERE.supported[0])
    assert capabilities() == HERE
    with pytest.raises(ValueError, match="kernels mmx do not run"):
        choose_kernels("mmx")


@pytest.mark.parametrize(
    ("system", "machine", "words"),
    [
        ("linux", "x86_64", "without a C compiler; install its wheel, or install a compiler"),
        ("linux", "aarch64", "without a C compiler; install its wheel, or install a compiler"),
        ("linux", "riscv64", "run on x86-64 and ARM64 only"),
        ("darwin", "arm64", "from source; install its wheel"),
        ("win32", "AMD64", "from source; install its wheel"),
    ],
)
def test_without_the_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: str, machine: str, words: str
) -> None:
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "none.so")
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    found = capabilities()
    assert (found.kernels, found.layouts, found.cheap_rows) == ("onnxruntime", ("onnxruntime",), 1)
    assert re.search(words, found.advice)


def test_a_library_of_another_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"no library")
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "broken.so")
    assert "do not load; reinstall" in capabilities().advice
    # One that loads, but was made by another version: it has none of the functions.
    other = ctypes.CDLL(None)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: other)
    assert capabilities().layouts == ("onnxruntime",)


@pytest.mark.parametrize(
    ("machine", "flags", "limit"),
    [
        ("x86_64", "fpu avx2 fma", 64),
        ("x86_64", "fpu avx2 avx_vnni", 127),
        ("x86_64", "avx2 avx512f avx512_vnni", 127),
        ("x86_64", None, 64),  # the system does not say: the safe choice
        ("aarch64", None, 127),
    ],
)
def test_int8_weights_stay_below_what_the_processor_adds_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str, flags: str | None, limit: int
) -> None:
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    monkeypatch.setattr(processor, "CPUINFO", file)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert capabilities().int8_limit == limit


def test_our_cache_takes_half_the_bytes() -> None:
    assert [cache_type(layout) for layout in LAYOUTS] == ["float16", "float32"]


def test_an_artifact_that_does_not_run_here_is_refused(
    tiny_checkpoint: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = export(tiny_checkpoint[0], tmp_path / "out", RECIPES["fast"], layout=NATIVE_LAYOUT)
    without = replace(HERE, layouts=("onnxruntime",), advice="no compiler")
    monkeypatch.setattr(native, "capabilities", lambda: without)
    words = r"do not run here \(no compiler\); export its checkpoint again"
    with pytest.raises(ArtifactError, match=words):
        OnnxEngine(artifact)
