"""Compiles the kernels for emulation: AVX-512, AVX-VNNI and AMX run on any processor with AVX2."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hatch_build import FLAGS, FOLDER

# The environment variable with more flags for the compiler: see `tests/native/sanitize.py`.
EXTRA_FLAGS = "QWINK_TEST_FLAGS"

HERE = Path(__file__).parent
HEADER = HERE / "avx512.h"
NATIVE = HERE.parents[2] / FOLDER

# x86-64-v3 is AVX2, FMA and F16C, and nothing beyond them. Without contraction a product and a sum
# are rounded one by one, as the instructions do it.
# -O2, because GCC takes three times as long to compile the emulated vectors with -O3.
EMULATION = ("-O2", "-march=x86-64-v3", "-ffp-contract=off", "-Wno-psabi", "-DQWINK_EMULATE")

SELFTEST = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")

# What asks the processor, in each set's folder; `state.c` answers instead.
REPLACED = ("cpu.c",)

# Intrinsics that a processor with AVX2 does not run.
BEYOND_AVX2 = re.compile(
    r"\b_(?:mm512_\w+|mm\d*_maskz?_\w+|mm\d*_dp(?:bu|bs|ws|bf)\w+|mm\d*_cvtne\w+|tile_\w+)(?=\s*\()"
)
EMULATED = re.compile(r"\bemu(_(?:mm\d*|tile)_\w+)(?=\()")


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def extra_flags() -> list[str]:
    return shlex.split(os.environ.get(EXTRA_FLAGS, ""))


def compile_native(library: Path) -> None:
    """The kernels for this processor, as hatch_build.py compiles them. RuntimeError: it failed."""
    sources = sorted(map(str, NATIVE.rglob("*.c")))
    run([*compiler(), *FLAGS, *extra_flags(), *sources, "-o", str(library)])


def why_not() -> str | None:
    """Why the emulated kernels cannot be compiled and run here; None if they can."""
    if shutil.which(compiler()[0]) is None:
        return f"no C compiler ({compiler()[0]}): the emulated kernels cannot be compiled"
    if platform.machine() not in ("x86_64", "AMD64"):
        return "the emulated kernels are written for x86-64"
    return None


def emulated_intrinsics() -> list[str]:
    """The names that the emulator defines, as the preprocessor sees them."""
    command = [*compiler(), "-E", "-P", *EMULATION, str(HEADER)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sorted(set(EMULATED.findall(text)))


def missing_intrinsics() -> set[str]:
    """Intrinsics of the kernels that the emulator lacks."""
    used: set[str] = set()
    for path in (*NATIVE.rglob("*.c"), *NATIVE.rglob("*.h")):
        used |= set(BEYOND_AVX2.findall(path.read_text()))
    return used - set(emulated_intrinsics())


def build(folder: Path) -> Path:
    """The emulated library, made in `folder`.

    RuntimeError: the kernels use an intrinsic that the emulator lacks, or do not compile.
    """
    if missing := missing_intrinsics():
        raise RuntimeError(f"define in {HERE}: emu" + ", emu".join(sorted(missing)))
    command = [*compiler(), *FLAGS, *EMULATION, *extra_flags()]
    # Precompiled, because the headers take as long to read as most kernels take to compile.
    header = folder / "emulation.h"
    lines = (f"#undef {name}\n#define {name} emu{name}\n" for name in emulated_intrinsics())
    header.write_text(f'#include "{HEADER}"\n' + "".join(lines))
    run([*command, "-x", "c-header", str(header), "-o", f"{header}.gch"])
    sources = [path for path in NATIVE.rglob("*.c") if path.name not in REPLACED]

    def compile_one(numbered: tuple[int, Path]) -> str:
        number, source = numbered
        made = folder / f"{number}.o"
        run([*command, "-include", str(header), "-c", str(source), "-o", str(made)])
        return str(made)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, enumerate((HERE / "state.c", *sorted(sources)))))
    library = folder / "emulated.so"
    run([*command, *objects, "-o", str(library)])
    return library


def build_selftest(folder: Path) -> Path:
    """The program that compares emulated intrinsics with those of AVX2, made in `folder`."""
    program = folder / "selftest"
    run([*compiler(), *SELFTEST, *EMULATION, str(HERE / "selftest.c"), "-o", str(program), "-lm"])
    return program


def run(command: list[str]) -> str:
    """What a command prints. RuntimeError: it failed."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr
