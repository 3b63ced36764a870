"""Compiles `qwink.native` when the package is built on Linux with a C compiler.

Otherwise graphs are made of ONNX Runtime's operators alone.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/qwink/native")
# Each instruction set's files compile to nothing on other machines, so all files are compiled.
MACHINES = ("x86_64", "aarch64")
FLAGS = (
    "-O3",
    "-std=gnu11",
    "-pthread",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-ffp-contract=off",  # the kernels say where they use a fused product and sum
)


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the compiled library to wheels, and to the source tree of editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        library = Path(self.root) / FOLDER / "_kernels.so"
        library.unlink(missing_ok=True)
        if sys.platform != "linux" or platform.machine() not in MACHINES:
            return
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if shutil.which(compiler[0]) is None:
            self.app.display_warning("no C compiler: qwink uses ONNX Runtime's operators alone")
            return
        sources = sorted(map(str, library.parent.glob("**/*.c")))
        command = [*compiler, *FLAGS, *sources, "-o", str(library)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            self.app.display_warning(f"qwink's kernels do not compile here:\n{result.stderr}")
            library.unlink(missing_ok=True)
            return
        build_data["artifacts"].append(str(FOLDER / library.name))
        build_data["pure_python"] = False
        # For any Python: the library is not one of its modules.
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_")
