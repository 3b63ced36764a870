"""Random nodes for each set of kernels: they run or are refused, and nothing crashes.

    python -m tests.native.sanitize --fuzz MINUTES [--set NAME] [--first NUMBER]

MINUTES are for each set: compiled where this processor has its instructions, otherwise emulated.
`sanitize` starts this program with libraries that end it at the first read or write outside of a
tensor. Each node is made from its number alone; what is printed after a crash makes it again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np

from tests.native.cases import refusal
from tests.native.emulation.build import build
from tests.native.nodes import choose, supported
from tests.native.random_cases import RANDOM, changed
from tests.native.steps import run_steps

SETS = ("amx", "avx512", "avxvnni", "avx2")
STEPS = "steps"  # of one TextAttention
SUBJECTS = (*RANDOM, STEPS)


def fuzz_one(library: Path, subject: str, number: int) -> Counter[str]:
    """Makes and runs what has this number: how many runs there were, and how many refusals.

    AssertionError: an operator refused what fits. Any other error than a refusal is raised.
    """
    rng = np.random.default_rng([*subject.encode(), number])
    if subject == STEPS:
        return Counter("runs" if ran else "refused" for ran in run_steps(library, rng))
    case = RANDOM[subject](rng)
    changes = number % 4  # a quarter fits
    for _ in range(changes):
        case = changed(rng, case)
    message = refusal(library, case)
    assert changes or message is None, f"{subject} {number} was refused: {message}"
    return Counter(["runs" if message is None else "refused"])


def fuzz_set(library: Path, name: str, first: int, seconds: float, log: Path) -> str:
    """What came out of a set's nodes, in words; `log` has the number of the last one."""
    assert choose(library, name), f"{library} has no kernels {name}"
    total: dict[str, Counter[str]] = {subject: Counter() for subject in SUBJECTS}
    end = time.monotonic() + seconds
    for number in count(first):
        log.write_text(f"--set {name} --first {number}")
        for subject in SUBJECTS:
            total[subject] += fuzz_one(library, subject, number)
        if time.monotonic() >= end:
            break
    words = (f"{op} {of['runs']} ran {of['refused']} refused" for op, of in total.items())
    return f"{name}: numbers {first} to {number}: " + ", ".join(words)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--fuzz", type=float, metavar="MINUTES", required=True)
    parser.add_argument("--set", choices=SETS, help="only this one")
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER")
    options = parser.parse_args(arguments)
    wanted = [options.set] if options.set else list(SETS)
    here = supported(options.library)
    with tempfile.TemporaryDirectory() as folder:
        emulated = build(Path(folder)) if set(wanted) - set(here) else options.library
        for name in wanted:
            library = options.library if name in here else emulated
            how = "compiled" if name in here else "emulated"
            result = fuzz_set(library, name, options.first, 60 * options.fuzz, options.log)
            print(f"{result} ({how})", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
