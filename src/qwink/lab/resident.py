"""Resident memory of a model under use: does it stay below weights plus budget?

    python -m qwink.lab.resident ARTIFACT [--users 8] [--minutes 5] [--tokens 64] [--memory-mb N]

Users ask about pictures of several sizes, new ones and known ones, with answers of several lengths,
as fast as they get answers. The memory of the process is sampled every few seconds. Mapped files
(weights that were not copied) count as resident too, as the system counts them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from qwink.engine.threads import physical_cores
from qwink.lab.facts import rss_bytes
from qwink.lab.pictures.sample import clouds
from qwink.lab.record import RESULTS, record, write
from qwink.runtime.memory import Memory
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM

SIDES = (336, 448, 640, 1024)  # pixels
QUESTIONS = ("What is shown?", "Which colours are there?", "Describe it in detail, please.")
INTERVAL_S = 5.0


def use(vlm: VLM, seed: int, most_tokens: int, deadline: float, count: list[int]) -> None:
    """One user, until `deadline` on the clock of `time.monotonic`."""
    rng = random.Random(seed)
    while time.monotonic() < deadline:
        side = rng.choice(SIDES)
        picture = clouds(rng.randrange(40), side)  # some of them are asked about again
        area = min(side * side, vlm.engine.config.preprocessor.max_pixels)
        limits: dict[str, Any] = {"min_pixels": area, "max_pixels": area}
        vlm.ask(
            [picture],
            rng.choice(QUESTIONS),
            max_tokens=rng.randrange(1, most_tokens),
            temperature=1.0,
            **limits,
        )
        count[0] += 1


def measure(vlm: VLM, users: int, minutes: float, most_tokens: int) -> dict[str, Any]:
    """Samples of resident memory [s, MiB], and the number of answers."""
    loaded, begin = rss_bytes(), time.monotonic()
    deadline = begin + 60 * minutes
    counts = [[0] for _ in range(users)]
    threads = [
        threading.Thread(target=use, args=(vlm, seed, most_tokens, deadline, counts[seed]))
        for seed in range(users)
    ]
    for thread in threads:
        thread.start()
    samples = []
    while any(thread.is_alive() for thread in threads):
        samples.append([round(time.monotonic() - begin), rss_bytes() >> 20])
        print(*samples[-1], sum(count[0] for count in counts), file=sys.stderr, flush=True)
        time.sleep(INTERVAL_S)
    third = len(samples) // 3
    return {
        "answers": sum(count[0] for count in counts),
        "loaded_mib": loaded >> 20,
        "most_mib": max(mib for _, mib in samples),
        "most_of_last_third_mib": max(mib for _, mib in samples[-third:]),
        "most_of_second_third_mib": max(mib for _, mib in samples[third : 2 * third]),
        "samples": samples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact")
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--tokens", type=int, default=64, help="most tokens of an answer")
    parser.add_argument("--memory-mb", type=int)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--out", type=Path, default=RESULTS / "resident.json")
    args = parser.parse_args()
    memory = Memory.divide(args.memory_mb << 20) if args.memory_mb else Memory.default()
    with load(args.artifact, threads=args.threads, memory=memory) as vlm:
        vlm.ask(None, "Warm up.", max_tokens=2)
        result = {
            "artifact": Path(args.artifact).name,
            "users": args.users,
            "minutes": args.minutes,
            "budget_mib": memory.total_bytes >> 20,
        } | measure(vlm, args.users, args.minutes, args.tokens)
    write(args.out, record("resident", result).document())
    print(json.dumps({key: value for key, value in result.items() if key != "samples"}))


if __name__ == "__main__":
    main()
