"""Time from process start to the first token, and the time of `import qwink`.

    python -m qwink.lab.start --model nano --model fast=ARTIFACT [--picture examples/sign.png]

Each measurement is a new process, timed by this one. Files are in the page cache, as on a machine
that has run qwink before. Writes JSON to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import Summary, summarise


def measure(command: list[str], rounds: int) -> Summary:
    """Wall-clock milliseconds of the whole process."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append((time.perf_counter() - start) * 1e3)
    return summarise(times)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", action="append", default=[], metavar="[NAME=]REF")
    parser.add_argument("--picture", default="examples/receipt-line.png")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "start.json")
    args = parser.parse_args(arguments)
    result: dict[str, Any] = {
        "rounds": args.rounds,
        "import_qwink_ms": asdict(measure([sys.executable, "-c", "import qwink"], args.rounds)),
        "ask_ms": {},
    }
    for item in args.model:
        name, _, reference = item.rpartition("=")
        command = [sys.executable, "-m", "qwink", "ask", args.picture, "--model", reference]
        command += ["--question", "What does it say?", "--max-pixels", "50176"]
        # A random model never ends its answer: measure up to its first token.
        command += [] if reference == "nano" else ["--max-tokens", "1"]
        found = measure(command, args.rounds)
        result["ask_ms"][name or reference] = asdict(found)
        print(name or reference, found, file=sys.stderr, flush=True)
    write(args.out, record("start", result).document())


if __name__ == "__main__":
    main()
