"""The gain of caches and continuous batching on one artifact, measured in one run.

    python -m qwink.lab.serving ARTIFACT

Figures, all at the scheduler, without HTTP:
- first token of a question about a new picture; right after its answer, of a second question about
  it (same start of the prompt) and of that question again; and of the same picture under another
  system prompt (only its encoding is reused);
- an answer's step of one token, of a token for each of eight sequences, and of eight tokens of one
  sequence;
- tokens per second of 1, 4 and 8 streams together;
- the longest gap between two tokens of a running stream while another user's picture is encoded
  and prefilled, against one run of the vision encoder.
Writes JSON to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from qwink.engine.base import Chunk, NewTokens
from qwink.lab.pictures.sample import clouds
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import paired_ratio, summarise
from qwink.model.rope import mrope_positions
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.types import Prompt, Result

SIZE = 448
OPTIONS: dict[str, Any] = {"min_pixels": SIZE * SIZE, "max_pixels": SIZE * SIZE}


def ask(vlm: VLM, image: Any, question: str, tokens: int, system: str | None = None) -> Result:
    # Greedy answers of random weights end early or loop, so tokens are drawn.
    return vlm.ask(
        [image], question, system=system, max_tokens=tokens, temperature=1.0, seed=1, **OPTIONS
    )


def first_tokens(vlm: VLM, rounds: int) -> dict[str, Any]:
    kinds = ("new", "second_question", "same_question_again", "other_system_prompt")
    rows: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        image = clouds(1000 + number, SIZE)
        for kind, question, system in (
            ("new", "What is shown in this picture?", None),
            ("second_question", "Which colours does it have, from left to right?", None),
            ("same_question_again", "Which colours does it have, from left to right?", None),
            ("other_system_prompt", "What is shown in this picture?", "Answer in one word."),
        ):
            result = ask(vlm, image, question, 4, system)
            rows[kind].append(result.timings.first_token_ms)
            print(kind, round(rows[kind][-1]), result.usage, file=sys.stderr, flush=True)
    medians = {kind: round(summarise(values).median, 1) for kind, values in rows.items()}
    faster = {kind: round(paired_ratio(rows["new"], rows[kind]).median, 2) for kind in kinds[1:]}
    return {"first_token_ms": medians, "times_faster_than_new": faster}


def steps(vlm: VLM, rounds: int) -> dict[str, Any]:
    """Milliseconds of steps of one and eight rows, behind 256 tokens of text each, in turns."""
    engine, num_slots, length = vlm.engine, 8, 256
    cache = engine.open_cache(num_slots, 2 * length)
    ids = np.random.default_rng(0).integers(0, 1000, length)
    positions, following = mrope_positions(length, ())
    prompt = Prompt(ids, (), positions, following)
    for slot in range(num_slots):
        engine.prefill(cache, [Chunk(slot, prompt, {}, 0, length)])
    kinds = {
        "one_row": [NewTokens(0, (5,), length, following)],
        "eight_sequences": [NewTokens(s, (5,), length, following) for s in range(num_slots)],
        "eight_rows_of_one": [NewTokens(0, (5,) * 8, length, following, 8)],
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(4 * rounds):
        for kind, runs in kinds.items():
            start = time.perf_counter()
            engine.step(cache, runs)
            times[kind].append((time.perf_counter() - start) * 1e3)
    medians = {kind: summarise(values).median for kind, values in times.items()}
    return {
        "ms": {kind: round(value, 1) for kind, value in medians.items()},
        "times_one_row": {k: round(v / medians["one_row"], 2) for k, v in medians.items()},
    }


def throughput(vlm: VLM, tokens: int) -> dict[str, Any]:
    rates: dict[str, float] = {}
    encoded = [vlm.encode(clouds(seed, SIZE), **OPTIONS) for seed in range(8)]
    for streams in (1, 4, 8):
        stamps: list[list[float]] = [[] for _ in range(streams)]

        def run(index: int, stamps: list[list[float]] = stamps) -> None:
            for _ in vlm.stream(
                [encoded[index]],
                f"Tell a story about it, number {index}.",
                max_tokens=tokens,
                temperature=1.0,
                seed=index,
            ):
                stamps[index].append(time.perf_counter())

        threads = [threading.Thread(target=run, args=(index,)) for index in range(streams)]
        for thread in threads:
            thread.start()
        # Count tokens between the last stream's first token and the first stream's end.
        while any(not each for each in stamps):
            time.sleep(0.005)
        start, count = time.perf_counter(), vlm.scheduler.num_generated
        while all(thread.is_alive() for thread in threads):
            time.sleep(0.005)
        spent = time.perf_counter() - start
        rates[str(streams)] = round((vlm.scheduler.num_generated - count) / spent, 2)
        for thread in threads:
            thread.join()
        print(streams, rates[str(streams)], file=sys.stderr, flush=True)
    return {
        "tokens_per_second": rates,
        "times_one_stream": {k: round(v / rates["1"], 2) for k, v in rates.items()},
    }


def longest_gap(vlm: VLM, rounds: int) -> dict[str, Any]:
    """The longest time between tokens of one stream while a request with a new picture runs."""
    gaps, encodes = [], []
    for number in range(rounds):
        stamps: list[float] = []
        arrived = threading.Event()

        def run(stamps: list[float] = stamps, arrived: threading.Event = arrived) -> None:
            options: dict[str, Any] = {"max_tokens": 60, "temperature": 1.0, "seed": 5}
            for event in vlm.stream(None, "Tell a long story.", **options):
                if event.text:
                    stamps.append(time.perf_counter())
                    if len(stamps) == 5:
                        arrived.set()

        thread = threading.Thread(target=run)
        thread.start()
        arrived.wait()
        result = ask(vlm, clouds(5000 + number, SIZE), "What is shown in this picture?", 1)
        encodes.append(result.timings.encode_ms)
        thread.join()
        gaps.append(float(np.diff(stamps).max()) * 1e3)
    return {
        "longest_gap_ms": round(summarise(gaps).median, 1),
        "encode_ms": round(summarise(encodes).median, 1),
        "gap_over_encode": round(paired_ratio(gaps, encodes).median, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--out", type=Path, default=RESULTS / "serving.json")
    args = parser.parse_args()
    # Random weights answer in loops, which drafts would make faster than any real text.
    with load(args.artifact, threads=args.threads, speculate="off") as vlm:
        ask(vlm, clouds(1, SIZE), "Warm up.", 2)
        result = {
            "work": f"{SIZE}x{SIZE} pictures, 196 visual tokens each",
            "artifact": Path(args.artifact).name,
            "threads": args.threads,
            "rounds": args.rounds,
            "reuse": first_tokens(vlm, args.rounds),
            "steps": steps(vlm, args.rounds),
            "batching": throughput(vlm, args.tokens),
            "fairness": longest_gap(vlm, args.rounds),
        }
    write(args.out, record("serving", result).document())
    print(json.dumps({k: result[k] for k in ("reuse", "steps", "batching", "fairness")}))


if __name__ == "__main__":
    main()
