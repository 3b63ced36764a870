"""Runs the operators' tests with libraries that check their memory and arithmetic.

    python -m tests.native.sanitize [arguments of pytest]
    python -m tests.native.sanitize --fuzz MINUTES [arguments of tests/native/fuzz.py]

Compiles the kernels with AddressSanitizer and UndefinedBehaviorSanitizer into a temporary folder,
once for this processor and once for emulation, and runs the tests of `tests/native` with both, or
random nodes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.native.emulation.build import EXTRA_FLAGS, compile_native, compiler

# -O1, because GCC takes many minutes to compile the emulated vectors with checks at -O2.
SANITIZE = "-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined"
# Named for conftest.py: the library to test in place of the installed one.
LIBRARY = "QWINK_TEST_LIBRARY"


def shared(name: str) -> str:
    """Where the compiler's library is."""
    command = [*compiler(), f"-print-file-name={name}"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(path).is_absolute():
        raise SystemExit(f"the compiler has no {name}: install its sanitizers")
    return path


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "sanitized.so"
        os.environ[EXTRA_FLAGS] = SANITIZE
        compile_native(library)
        environment = {
            **os.environ,
            LIBRARY: str(library),
            # The checks must be there before Python is; and libstdc++ with them, since they look up
            # the function that throws exceptions once, when they start.
            "LD_PRELOAD": f"{shared('libasan.so')} {shared('libstdc++.so')}",
            # Python and ONNX Runtime keep memory until the process ends.
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        log = Path(folder) / "last"
        if "--fuzz" in arguments:
            command = ["tests.native.fuzz", str(library), str(log), *arguments]
        else:
            command = ["pytest", *(arguments or ["tests/native"])]
        command = [sys.executable, "-m", *command]
        code = subprocess.run(command, env=environment, check=False).returncode
        if code and log.exists():
            again = f"python -m tests.native.sanitize --fuzz 0 {log.read_text()}"
            print(f"It ended with {code}. Run the same nodes again with:\n  {again}")
        return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
