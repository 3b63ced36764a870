"""Compiles the kernels for ARM64 with `zig cc`, and runs programs for it in qemu."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from hatch_build import FLAGS, FOLDER

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / FOLDER
EMULATOR = "qemu-aarch64"

# The oldest system that wheels of manylinux_2_28 run on.
LIBRARY_TARGET = "aarch64-linux-gnu.2.28"
# Without a dynamic loader, which would have to be installed for ARM64.
PROGRAM_TARGET = "aarch64-linux-musl"
# Undefined behaviour ends the program.
PROGRAM_FLAGS = (
    *("-static", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-ffp-contract=off"),
    *("-fsanitize=undefined", "-fsanitize-trap=all"),
)


def why_no_compiler() -> str | None:
    """Why nothing can be compiled for ARM64 here; None if it can."""
    if importlib.util.find_spec("ziglang") is None:
        return "no compiler for ARM64: pip install ziglang"
    return None


def why_no_emulator() -> str | None:
    """Why programs for ARM64 do not run here; None if they do."""
    if shutil.which(EMULATOR) is None:
        return f"no {EMULATOR}: install Debian's qemu-user"
    return None


def build_library(folder: Path) -> Path:
    """The whole library, made in `folder`. RuntimeError: it does not compile without warnings."""
    library = folder / "_kernels.so"
    sources = sorted(map(str, NATIVE.rglob("*.c")))
    _compile(LIBRARY_TARGET, *FLAGS, *sources, "-o", str(library))
    return library


def build_driver(folder: Path) -> Path:
    """The program of `driver.c`, made in `folder`. RuntimeError: it does not compile."""
    program = folder / "driver"
    sources = (*HERE.glob("*.c"), NATIVE / "dispatch.c", *(NATIVE / "neon").glob("*.c"))
    files = sorted(map(str, sources))
    _compile(PROGRAM_TARGET, *PROGRAM_FLAGS, *files, "-o", str(program), "-lm")
    return program


def run_as(processor: str, program: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program for ARM64 on an emulated processor, such as cortex-a72."""
    command = [EMULATOR, "-cpu", processor, str(program)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _compile(target: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-Werror", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(result.stderr)
