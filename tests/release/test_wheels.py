"""The wheels of a release, which `make wheels` builds: what they bring, and that it runs.

QWINK_TEST_WHEELS names their folder; without it, tests that need wheels are skipped.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from hatch_build import library_name
from qwink.native import LIBRARY, capabilities
from scripts.make_wheels import FUNCTIONS, TARGETS, faults, library_faults
from tests.release import harness

FOLDER = os.environ.get("QWINK_TEST_WHEELS", "")
ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "examples/sign.png"
KERNELS = "from qwink.native import capabilities; print(*capabilities().supported)"
X86_64_LINUX = (sys.platform, platform.machine()) == ("linux", "x86_64")

made = pytest.mark.skipif(not FOLDER, reason="QWINK_TEST_WHEELS is not set: run make wheels")
on_linux = pytest.mark.skipif(not X86_64_LINUX, reason="for Linux on x86-64")


def wheel_of(tag: str) -> Path:
    (wheel,) = Path(FOLDER).glob(f"*-py3-none-{tag}.whl")
    return wheel.resolve()


def test_the_library_has_the_name_that_is_loaded_here() -> None:
    tags = {"linux": "manylinux_2_28_x86_64", "darwin": "macosx_11_0_arm64", "win32": "win_amd64"}
    assert library_name(tags[sys.platform]) == LIBRARY.name
    assert {library_name(tag) for tag in TARGETS} == {
        *("_kernels.so", "_kernels.dll", "_kernels.dylib")
    }


def test_faults_of_a_wheel_are_found(tmp_path: Path) -> None:
    path = tmp_path / "qwink-1-py3-none-win_amd64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("qwink/native/dispatch.c", "")
        archive.writestr("qwink/native/_kernels.so", "")
    assert faults(path) == [
        "contains qwink/native/dispatch.c",
        "lacks qwink/assets/nano/model.safetensors",
        "lacks qwink/native/_kernels.dll",
        "contains qwink/native/_kernels.so",
    ]


def test_a_library_for_another_processor_is_found() -> None:
    elf = b"\x7fELF".ljust(18, b"\0") + b"\x3e\0"
    library = elf + b"\0".join(name.encode() for name in FUNCTIONS) + b"\0"
    assert library_faults(library, "manylinux_2_28_x86_64") == []
    for tag in set(TARGETS) - {"manylinux_2_28_x86_64"}:
        assert library_faults(library, tag) == [f"is not for {tag}"]
    assert library_faults(elf, "manylinux_2_28_x86_64") == [f"lacks {name}" for name in FUNCTIONS]


@made
@pytest.mark.parametrize("tag", TARGETS)
def test_each_wheel_brings_the_library_of_its_platform(tag: str) -> None:
    wheel = wheel_of(tag)
    assert faults(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        words = archive.read(name).decode().splitlines()
    assert f"Tag: py3-none-{tag}" in words
    assert "Root-Is-Purelib: false" in words


@made
def test_the_source_distribution_has_all_that_wheels_are_built_from() -> None:
    (sdist,) = Path(FOLDER).glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"hatch_build.py", "pyproject.toml", "LICENSE"} <= names
    sources = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("src/**/*.[ch]")}
    assert sources
    assert sources <= names
    assert not [name for name in names if name.endswith((".so", ".dll", ".dylib", ".whl"))]


@made
@on_linux
@pytest.mark.slow
def test_the_wheel_computes_where_there_is_no_compiler(tmp_path: Path) -> None:
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    environment = {
        **{key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CC")},
        "PATH": str(folder / "bin"),
        "QWINK_HOME": str(tmp_path / "home"),
    }
    assert not any(shutil.which(name, path=environment["PATH"]) for name in ("cc", "gcc", "clang"))

    def run(*command: str | Path) -> str:
        result = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    run(python, "-m", "pip", "install", "--quiet", wheel_of("manylinux_2_28_x86_64"))
    # The same sets as of the kernels compiled here: each was found to run on this processor.
    assert tuple(run(python, "-c", KERNELS).split()) == capabilities().supported != ()
    answer = run(folder / "bin/qwink", "ask", PICTURE, "--question", "What does it say?")
    assert answer.strip() == "Exit 7B"


@made
@on_linux
@pytest.mark.slow
def test_the_library_runs_here_without_python(tmp_path: Path) -> None:
    tag = "manylinux_2_28_x86_64"
    library = harness.unpack_library(wheel_of(tag), tmp_path)
    command = [str(harness.build_harness(tag, tmp_path)), str(library)]
    assert tuple(harness.sets_of(command, dict(os.environ))) == capabilities().supported != ()


@made
@pytest.mark.slow
@pytest.mark.skipif(harness.why_no_arm64() is not None, reason=str(harness.why_no_arm64()))
def test_the_library_for_arm64_runs_in_qemu(tmp_path: Path) -> None:
    tag = "manylinux_2_28_aarch64"
    library = harness.unpack_library(wheel_of(tag), tmp_path)
    program = harness.build_harness(tag, tmp_path)
    assert harness.run_on_arm64("max", program, library) == ["neon"]
    assert harness.run_on_arm64("cortex-a72", program, library) == []


@made
@on_linux
@pytest.mark.slow
@pytest.mark.skipif(harness.wine() is None, reason="no Wine: install Debian's wine64")
def test_the_library_for_windows_runs_in_wine(tmp_path: Path) -> None:
    library = harness.unpack_library(wheel_of("win_amd64"), tmp_path)
    program = harness.build_harness("win_amd64", tmp_path)
    found = harness.run_in_wine(program, library, tmp_path / "wine")
    # AMX needs the system's permission, which is asked for on Linux only.
    assert tuple(found) == tuple(name for name in capabilities().supported if name != "amx") != ()
