"""The kernels for ARM64: compiled by zig, run in qemu, and compared with plain loops in C."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.arm.build import (
    build_driver,
    build_library,
    run_as,
    why_no_compiler,
    why_no_emulator,
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := why_no_compiler() or why_no_emulator():
        pytest.skip(reason)
    return build_driver(tmp_path_factory.mktemp("arm"))


@pytest.mark.slow
def test_each_kernel_is_right(driver: Path) -> None:
    result = run_as("max", driver)
    assert (result.returncode, result.stdout, result.stderr) == (0, "neon\n", "")


@pytest.mark.slow
def test_a_processor_without_dot_products_uses_none(driver: Path) -> None:
    result = run_as("cortex-a72", driver)
    assert (result.returncode, result.stdout, result.stderr) == (0, "none\n", "")


@pytest.mark.slow
def test_the_library_compiles_without_warnings(tmp_path: Path) -> None:
    if reason := why_no_compiler():
        pytest.skip(reason)
    elf = build_library(tmp_path).read_bytes()
    assert elf[:4] == b"\x7fELF"
    assert int.from_bytes(elf[18:20], "little") == 183  # EM_AARCH64
    assert b"RegisterCustomOps" in elf
