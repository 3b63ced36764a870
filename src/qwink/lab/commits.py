"""Two checkouts of qwink in turns: is the new one slower than the old one?

    python -m qwink.lab.commits OLD/src=ARTIFACT NEW/src=ARTIFACT [--rounds 3]

Each checkout answers with an artifact that it exported itself, since formats may differ. Every turn
is a fresh process that uses the public API only: the cold start, the first token of a question
about a new 448×448 picture, the time per token, and tokens per second of eight answers together.
Ratios are medians of the ratios within rounds; above 1, the new checkout is faster.
"""

from __future__ import annotations

import argparse
import inspect
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

# No import of qwink here: a turn runs this file beside an older checkout.
FIGURES = ("cold_start_ms", "first_token_ms", "per_token_ms", "eight_streams_tokens_per_s")
TOKENS, STREAM_TOKENS = 24, 16
OPTIONS: dict[str, Any] = {"min_pixels": 448 * 448, "max_pixels": 448 * 448, "temperature": 1.0}


def answer(artifact: str, threads: int, started: float) -> dict[str, float]:
    """One turn, in the process of a checkout. `started`: when the process was started."""
    import numpy as np

    import qwink

    def picture(seed: int) -> Any:
        small = np.random.default_rng(seed).integers(0, 256, (14, 14, 3), np.uint8)
        return np.kron(small, np.ones((32, 32, 1), np.uint8))

    def ask(seed: int, num_tokens: int) -> Any:
        return vlm.ask(
            [picture(seed)], "What is shown?", max_tokens=num_tokens, seed=seed, **OPTIONS
        )

    # Random weights answer in loops, which drafts would make faster than any real text. An older
    # checkout has no drafts.
    options: dict[str, Any] = {"threads": threads}
    if "speculate" in inspect.signature(qwink.load).parameters:
        options["speculate"] = "off"
    with qwink.load(artifact, **options) as vlm:
        ask(1, 1)
        cold = time.time() - started
        ask(2, 8)
        timings = [ask(seed, TOKENS).timings for seed in (3, 4, 5)]
        counts = [0] * 8

        def stream(index: int) -> None:
            question, many = f"Tell story number {index}.", STREAM_TOKENS
            result = vlm.ask(None, question, max_tokens=many, seed=index, temperature=1.0)
            counts[index] = result.usage.completion_tokens

        workers = [threading.Thread(target=stream, args=(index,)) for index in range(8)]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        rate = sum(counts) / (time.perf_counter() - begin)
    return {
        "cold_start_ms": cold * 1e3,
        "first_token_ms": statistics.median(t.first_token_ms for t in timings),
        "per_token_ms": statistics.median(t.generate_ms / (TOKENS - 1) for t in timings),
        "eight_streams_tokens_per_s": rate,
    }


def turn(source: str, artifact: str, threads: int) -> dict[str, float]:
    """Run `answer` in a fresh process that imports qwink from `source`."""
    code = f"import runpy; runpy.run_path({str(Path(__file__))!r}, run_name='__turn__')"
    arguments = [sys.executable, "-c", code, artifact, str(threads), str(time.time())]
    from qwink.settings import environment

    variables = dict(environment()) | {"PYTHONPATH": source}
    done = subprocess.run(arguments, env=variables, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def ratios(old: list[dict[str, float]], new: list[dict[str, float]]) -> dict[str, float]:
    """Times that the new checkout is faster, by figure."""
    found = {}
    for figure in FIGURES:
        pairs = [(a[figure], b[figure]) for a, b in zip(old, new, strict=True)]
        faster = [b / a if figure.endswith("per_s") else a / b for a, b in pairs]
        found[figure] = round(statistics.median(faster), 3)
    return found


def main() -> None:
    from qwink.engine.threads import physical_cores
    from qwink.lab.record import RESULTS, record, write

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", metavar="OLD/src=ARTIFACT")
    parser.add_argument("new", metavar="NEW/src=ARTIFACT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--out", type=Path, default=RESULTS / "commits.json")
    args = parser.parse_args()
    sides = {"old": args.old.split("=", 1), "new": args.new.split("=", 1)}
    turns: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    for _ in range(args.rounds):
        for name, (source, artifact) in sides.items():
            turns[name].append(turn(source, artifact, args.threads))
            print(name, turns[name][-1], file=sys.stderr, flush=True)
    medians = {
        name: {f: round(statistics.median(one[f] for one in found), 2) for f in FIGURES}
        for name, found in turns.items()
    }
    result = {
        "artifact": Path(sides["new"][1]).name,
        "threads": args.threads,
        "rounds": args.rounds,
        "medians": medians,
        "times_faster": ratios(turns["old"], turns["new"]),
    }
    write(args.out, record("commits", result).document())
    print(json.dumps(result))


if __name__ == "__turn__":
    print(json.dumps(answer(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
if __name__ == "__main__":
    main()
