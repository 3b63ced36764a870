"""Kinds of processors: what each needs, and how to make this one compute like a lesser one."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from qwink.native import processor

SOURCE = Path(__file__).with_name("hide.c")
VARIABLE = "QWINK_LAB_CPU"  # that the library reads
# Kind of processor → the instruction sets that it has, each kind more than the one before. They
# are named as in /proc/cpuinfo.
_AVX2 = ("avx2", "fma", "f16c")
NEEDS = {
    "avx2": _AVX2,
    "avxvnni": (*_AVX2, "avx_vnni"),
    "avx512": (*_AVX2, "avx512f", "avx512_vnni", "avx512_vbmi", "avx512_bf16"),
}
CPUS = tuple(NEEDS)
# What a processor has beyond a kind, by the beginnings of names.
_BEYOND = {
    "avx2": ("avx512", "avx_vnni", "avx_ne_convert", "avx_ifma", "amx", "avx10"),
    "avxvnni": ("avx512", "amx", "avx10"),
    "avx512": ("amx", "avx10"),
}


@dataclass(frozen=True, slots=True)
class Cap:
    """How a process is started so that it computes as on a kind of processor."""

    cpu: str
    variables: dict[str, str]  # of its environment; empty where nothing has to be hidden


class CannotHide(Exception):
    """This machine or its compiler cannot hide instruction sets."""


def lacks(cpu: str, flags: frozenset[str]) -> str | None:
    """Why a processor with these flags cannot compute as this kind; None if it can."""
    missing = [name for name in NEEDS[cpu] if name not in flags]
    return f"this processor lacks {', '.join(missing)}" if missing else None


def beyond(cpu: str, flags: frozenset[str]) -> list[str]:
    """What has to be hidden."""
    return sorted(name for name in flags if name.startswith(_BEYOND[cpu]))


def cap(cpu: str, folder: Path, flags: frozenset[str] | None = None) -> Cap:
    """Compiles the library that hides into `folder` if there is something to hide.

    Raises CannotHide with the reason.
    """
    if not beyond(cpu, processor.flags() if flags is None else flags):
        return Cap(cpu, {})
    library = compile_library(folder)
    variables = {VARIABLE: cpu, "LD_PRELOAD": str(library)}
    try:
        tried = subprocess.run(
            ["/bin/true"], env=variables, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CannotHide(str(error)) from None
    if tried.returncode:
        raise CannotHide(tried.stderr.strip() or f"exit status {tried.returncode}")
    return Cap(cpu, variables)


def compile_library(folder: Path) -> Path:
    """Raises CannotHide."""
    if not SOURCE.is_file():
        raise CannotHide(f"{SOURCE.name} is part of the sources only; run it from a checkout")
    compiler = shutil.which("cc")
    if compiler is None:
        raise CannotHide("needs a C compiler named cc")
    library = folder / "hide.so"
    command = [compiler, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o"]
    made = subprocess.run(
        [*command, str(library), str(SOURCE)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        lines = made.stderr.strip().splitlines() or ["no message"]
        raise CannotHide(f"cc: {lines[-1]}")
    return library
