"""From process start to the first token, and what an import costs.

    python -m benchmarks.start --model nano --model fast=ARTIFACT [--picture examples/sign.png]

Every figure is a fresh process, timed from outside. Files are in the page cache, as they are on a
machine that has run qwink before. Writes JSON to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qwink.bench.facts import collect

RESULTS = Path(__file__).parent / "results"


def measured(command: list[str], rounds: int) -> dict[str, float]:
    """Wall-clock milliseconds of the whole process: median, least and largest."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append((time.perf_counter() - start) * 1e3)
    return {
        "median": round(statistics.median(times)),
        "min": round(min(times)),
        "max": round(max(times)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", action="append", default=[], metavar="[NAME=]REF")
    parser.add_argument("--picture", default="examples/receipt-line.png")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "start.json")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "rounds": args.rounds,
        "facts": asdict(collect()),
        "import_qwink_ms": measured([sys.executable, "-c", "import qwink"], args.rounds),
        "ask_ms": {},
    }
    for item in args.model:
        name, _, reference = item.rpartition("=")
        command = [sys.executable, "-m", "qwink", "ask", args.picture, "--model", reference]
        command += ["--question", "What does it say?", "--max-pixels", "50176"]
        # nano answers in full; a random model would never stop, so its first token counts.
        command += [] if reference == "nano" else ["--max-tokens", "1"]
        result["ask_ms"][name or reference] = measured(command, args.rounds)
        print(name or reference, result["ask_ms"][name or reference], file=sys.stderr, flush=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
