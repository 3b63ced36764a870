"""Builds what a release uploads: the source distribution, and a wheel for each platform.

    python -m scripts.make_wheels [--out dist] [PLATFORM ...]

Every wheel is built from the unpacked source distribution and brings the kernels, compiled with
`zig cc`, which compiles for all platforms on any of them. Then the files are checked: contents,
`twine check --strict`, and for Linux `auditwheel show`. Needs pip install 'qwink[release]'.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hatch_build import FOLDER, PLATFORM, library_name

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Target:
    """What a platform's library is compiled for, in zig's words, and how its file starts."""

    zig: str
    magic: bytes
    machine: tuple[int, bytes]  # offset from the start, or from the PE header, and what is there


# By the platform's tag in the wheel's name.
TARGETS = {
    "manylinux_2_28_x86_64": Target("x86_64-linux-gnu.2.28", b"\x7fELF", (18, b"\x3e\0")),
    "manylinux_2_28_aarch64": Target("aarch64-linux-gnu.2.28", b"\x7fELF", (18, b"\xb7\0")),
    "win_amd64": Target("x86_64-windows-gnu", b"MZ", (4, b"\x64\x86")),
    "macosx_11_0_arm64": Target("aarch64-macos.11.0", b"\xcf\xfa\xed\xfe", (4, b"\x0c\0\0\x01")),
    "macosx_11_0_x86_64": Target("x86_64-macos.11.0", b"\xcf\xfa\xed\xfe", (4, b"\x07\0\0\x01")),
}
# -s: without what debuggers read, which is half of the library.
OPTIONS = ("-Werror", "-s")

# What a wheel must bring besides Python modules, and what the library must offer to `qwink.native`
# and to ONNX Runtime.
ASSET = "qwink/assets/nano/model.safetensors"
FUNCTIONS = (
    *("RegisterCustomOps", "qwink_kernels", "qwink_kernels_supported"),
    *("qwink_cheap_rows", "qwink_choose_kernels"),
)


def run(*command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """What a command prints; SystemExit with it if the command fails."""
    result = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SystemExit(f"{shlex.join(map(str, command))}\n{result.stdout}")
    return result.stdout


def build_sdist(out: Path) -> Path:
    """The source distribution, made in `out`."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out)
    (made,) = out.glob("*.tar.gz")
    return made


def compiler(platform: str) -> list[str]:
    """The command that compiles for a platform of TARGETS."""
    return [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[platform].zig]


def build_wheel(sdist: Path, platform: str, out: Path) -> Path:
    """The wheel for a platform of TARGETS, made in `out`."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        environment = {PLATFORM: platform, "CC": shlex.join([*compiler(platform), *OPTIONS])}
        command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out)
        run(*command, cwd=source, environment=environment)
    (made,) = out.glob(f"*-py3-none-{platform}.whl")
    return made


def library_faults(library: bytes, platform: str) -> list[str]:
    """What is wrong with a compiled library for a platform of TARGETS."""
    target = TARGETS[platform]
    offset, machine = target.machine
    if target.magic == b"MZ":  # the place of the PE header is written at byte 60
        offset += int.from_bytes(library[60:64], "little")
    found = [f"lacks {name}" for name in FUNCTIONS if f"{name}\0".encode() not in library]
    if not library.startswith(target.magic) or library[offset:][: len(machine)] != machine:
        found.append(f"is not for {platform}")
    return found


def faults(wheel: Path) -> list[str]:
    """What is wrong with a wheel's contents."""
    platform = wheel.stem.rpartition("-")[2]
    library = f"qwink/{FOLDER.name}/{library_name(platform)}"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        found = [f"contains {name}" for name in names if name.endswith((".c", ".h"))]
        found += [f"lacks {name}" for name in (ASSET, library) if name not in names]
        others = (".so", ".dll", ".dylib")
        found += [f"contains {n}" for n in names if n.endswith(others) and n != library]
        if library in names:
            found += [f"{library} {x}" for x in library_faults(archive.read(library), platform)]
    return found


def check_glibc(wheel: Path) -> None:
    """SystemExit if the library needs a newer glibc than the wheel's tag promises."""
    shown = run(sys.executable, "-m", "auditwheel", "show", wheel)
    promised = re.search(r"manylinux_2_(\d+)_", wheel.name)
    # The sentence may be broken over lines anywhere.
    needed = re.search(r'platform tag:\s+"manylinux_2_(\d+)_', shown)
    if not promised or not needed or int(needed[1]) > int(promised[1]):
        raise SystemExit(f"auditwheel does not accept {wheel.name}:\n{shown}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=", ".join(TARGETS))
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args(arguments)
    if unknown := set(options.platforms) - set(TARGETS):
        parser.error(f"unknown platform {min(unknown)}; known are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as folder:
        sdist = build_sdist(Path(folder))
        made = [sdist]
        platforms = options.platforms or list(TARGETS)
        print(f"wheels for {', '.join(platforms)} ...", flush=True)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made += pool.map(lambda each: build_wheel(sdist, each, Path(folder)), platforms)
        for wheel in made[1:]:
            if wrong := faults(wheel):
                raise SystemExit(f"{wheel.name}: {'; '.join(wrong)}")
            if "linux" in wheel.name:
                check_glibc(wheel)
        run(sys.executable, "-m", "twine", "check", "--strict", *made)
        options.out.mkdir(parents=True, exist_ok=True)
        for path in made:
            shutil.copy(path, options.out)
            print(options.out / path.name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
