"""Compiles `qwink.native` when a wheel is built.

From source that happens on Linux with a C compiler; otherwise graphs are made of ONNX Runtime's
operators alone. For a release `scripts/make_wheels.py` names the platform and a compiler for it;
then kernels that do not compile are an error.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/qwink/native")
# Each instruction set's files compile to nothing on other machines, so all files are compiled.
MACHINES = ("x86_64", "aarch64")
FLAGS = (
    "-O3",
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-ffp-contract=off",  # the kernels say where they use a fused product and sum
)
# The environment variable with the platform's tag in the wheel's name, such as win_amd64.
PLATFORM = "QWINK_WHEEL_PLATFORM"
# Ends of the library's name, by the first word of the tag; `qwink.native` looks for these names.
SUFFIXES = {"win": ".dll", "macosx": ".dylib"}


def library_name(tag: str) -> str:
    """The file name of the kernels on the platform of a tag."""
    return "_kernels" + SUFFIXES.get(tag.partition("_")[0], ".so")


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the compiled library to wheels, and to the source tree of editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        wanted = os.environ.get(PLATFORM)
        # For any Python: the library is not one of its modules.
        tag = wanted or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        library = Path(self.root) / FOLDER / library_name(tag)
        library.unlink(missing_ok=True)
        if not wanted and (sys.platform != "linux" or platform.machine() not in MACHINES):
            return
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if not wanted and shutil.which(compiler[0]) is None:
            self.app.display_warning("no C compiler: qwink uses ONNX Runtime's operators alone")
            return
        sources = sorted(map(str, library.parent.glob("**/*.c")))
        # In a folder of its own, because compilers for Windows write other files beside a library.
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / library.name
            command = [*compiler, *FLAGS, *sources, "-o", str(made)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                if wanted:
                    raise SystemExit(f"the kernels do not compile for {wanted}:\n{result.stderr}")
                self.app.display_warning(f"qwink's kernels do not compile here:\n{result.stderr}")
                return
            shutil.copy(made, library)
        build_data["artifacts"].append(str(FOLDER / library.name))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
