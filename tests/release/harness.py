"""Runs a wheel's library without Python: natively, in qemu, or in Wine. See `harness.c`."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from scripts.make_wheels import OPTIONS, compiler

SOURCE = Path(__file__).with_name("harness.c")
# Optimised and stripped as the library is, so that zig finds its runtime libraries compiled.
FLAGS = ("-O3", "-std=gnu11", "-Wall", "-Wextra", *OPTIONS)
# Where Debian's libc6-arm64-cross puts the C library of ARM64.
ARM64_SYSTEM = Path("/usr/aarch64-linux-gnu")
# Debian's wine64 is not on the PATH without its package wine.
WINE = ("wine64", "wine", "/usr/lib/wine/wine64")


def unpack_library(wheel: Path, folder: Path) -> Path:
    """The library of a wheel, unpacked into `folder`."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if "native/_kernels." in name)
        return Path(archive.extract(name, folder))


def build_harness(platform: str, folder: Path) -> Path:
    """The program for a platform of TARGETS, made in `folder`."""
    program = folder / ("harness.exe" if platform.startswith("win") else "harness")
    libraries = () if platform.startswith("win") else ("-lm", "-ldl")
    command = [*compiler(platform), *FLAGS, str(SOURCE), "-o", str(program), *libraries]
    subprocess.run(command, check=True)
    return program


def why_no_arm64() -> str | None:
    """Why programs for ARM64 do not run here with a dynamic loader; None if they do."""
    if shutil.which("qemu-aarch64") is None:
        return "no qemu-aarch64: install Debian's qemu-user"
    if not (ARM64_SYSTEM / "lib/ld-linux-aarch64.so.1").exists():
        return "no C library of ARM64: install Debian's libc6-arm64-cross"
    return None


def wine() -> str | None:
    """The command that runs Windows' programs; None if there is none."""
    return next(filter(None, map(shutil.which, WINE)), None)


def run_on_arm64(processor: str, program: Path, library: Path) -> list[str]:
    """The sets of kernels that run, on an emulated processor such as cortex-a72."""
    command = ["qemu-aarch64", "-L", str(ARM64_SYSTEM), "-cpu", processor]
    return sets_of([*command, str(program), str(library)], dict(os.environ))


def run_in_wine(program: Path, library: Path, home: Path) -> list[str]:
    """The sets of kernels that run; Wine keeps its files in `home`."""
    command = wine()
    assert command is not None
    # Without a window, and without asking to install what web pages and .NET need.
    environment = {
        **{name: value for name, value in os.environ.items() if name != "DISPLAY"},
        "WINEPREFIX": str(home),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=",
    }
    return sets_of([command, str(program), f"Z:{library}"], environment)


def sets_of(command: list[str], environment: dict[str, str]) -> list[str]:
    """The lines that a harness prints. AssertionError: it failed."""
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.split()
