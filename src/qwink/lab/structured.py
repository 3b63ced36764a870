"""The cost of a grammar: time per token with and without one, alone and eight together.

    python -m qwink.lab.structured ARTIFACT [--tokens 48] [--rounds 3]

The grammar allows any text, so that it forces no token and the answers are as long as without it:
what is left is the masks. Rounds with and without it take turns. Drafts are off. The time of a
token counts from when all answers have begun to when the first has ended, without any prompt.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qwink.engine.threads import physical_cores
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import paired_ratio, summarise
from qwink.runtime.listening import listen
from qwink.runtime.messages import user_message
from qwink.runtime.models import load

ANY_TEXT = r"(?s:.+)"
WAYS: dict[str, dict[str, Any]] = {"without": {}, "with": {"regex": ANY_TEXT}}
TOGETHER = (1, 8)
MIN_STEPS = 8


def per_token_ms(times: Sequence[Sequence[float]]) -> float:
    """The mean time of a step while all answers run; `times` are those of their tokens in s.

    Raises ValueError if the answers did not run together.
    """
    begin, end = max(one[0] for one in times), min(one[-1] for one in times)
    inside = [time for time in times[0] if begin <= time <= end]
    if len(inside) < MIN_STEPS:
        raise ValueError("the answers hardly ran together; give more --tokens")
    return 1e3 * (inside[-1] - inside[0]) / (len(inside) - 1)


def measure(
    ask: Callable[[int, dict[str, Any]], list[float]], together: int, rounds: int
) -> dict[str, Any]:
    """Both ways in turns, `together` answers at once."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with ThreadPoolExecutor(together) as pool:
        for number in range(rounds):
            for way, options in WAYS.items():
                seeds = range(number * together, (number + 1) * together)
                results = list(pool.map(lambda seed, given=options: ask(seed, given), seeds))
                found[way].append(per_token_ms(results))
                print(together, way, found[way][-1], file=sys.stderr, flush=True)
    return {
        "together": together,
        **{f"{way}_ms_per_token": asdict(summarise(values)) for way, values in found.items()},
        "cost": asdict(paired_ratio(found["with"], found["without"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--out", type=Path, default=RESULTS / "structured.json")
    args = parser.parse_args()
    with load(args.artifact, threads=args.threads, speculate="off") as vlm:

        def ask(seed: int, options: dict[str, Any]) -> list[float]:
            """The times of the answer's tokens."""
            given = {"max_tokens": args.tokens, "temperature": 1.0, "seed": seed, **options}
            chosen, sampling = vlm.split_options(given)
            turns = [user_message((), f"Write about the number {seed}.", chosen.task)]
            request = vlm.prepare(turns, chosen, sampling, num_logprobs=0)
            events = ((event, time.perf_counter()) for event in listen(vlm.scheduler, request))
            return [now for event, now in events for _ in event.logprobs]

        for options in WAYS.values():  # the tokenizer of grammars is made at the first use
            ask(-1, options)
        measured = {
            "tokens": args.tokens,
            "threads": args.threads,
            "runs": [measure(ask, together, args.rounds) for together in TOGETHER],
        }
    write(args.out, record("structured", measured).document())
    print(json.dumps([run["cost"]["median"] for run in measured["runs"]]))


if __name__ == "__main__":
    main()
