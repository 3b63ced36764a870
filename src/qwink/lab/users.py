"""Users with pictures of mixed sizes: how long they wait for tokens, in one or two checkouts.

    python -m qwink.lab.users OLD/src=ARTIFACT NEW/src=ARTIFACT [--users 8] [--minutes 5]

Each checkout serves an artifact that it exported itself, in turns. Users ask one question after the
other, about a new picture each time (of 336 to 1024 px, shown at its size), and follow the stream.
Figures: gaps between the pieces of an answer, time to the first one, answers per minute. Gaps and
first tokens are pooled over the turns of a checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from qwink.engine.threads import physical_cores
from qwink.errors import QwinkError
from qwink.lab.load.client import Reply, ask, find_model
from qwink.lab.pictures.sample import as_jpeg, clouds, variant
from qwink.lab.process import ServerProcess
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import Summary, summarise

SIDES = (336, 448, 560, 672, 768, 896, 1024)  # pixels
QUESTIONS = ("What is shown?", "Which colours are there?", "Describe it in detail, please.")
TOKENS = (16, 32, 64)


@dataclass(frozen=True, slots=True)
class Figures:
    """What users of one checkout got, ms. `errors` counts failed requests by kind."""

    source: str
    answers: int
    answers_per_minute: float
    tokens_per_s: float
    gap_ms: Summary
    first_token_ms: Summary
    errors: dict[str, int]


@dataclass(frozen=True, slots=True)
class Turn:
    """All replies of one turn."""

    replies: tuple[Reply, ...]
    minutes: float


def figures(source: str, turns: Sequence[Turn]) -> Figures:
    """The figures of one checkout's turns. Raises QwinkError without an answer of two tokens."""
    replies = [reply for turn in turns for reply in turn.replies]
    answered = [reply for reply in replies if reply.error is None]
    gaps = [gap for reply in answered for gap in reply.gaps_ms]
    if not gaps:
        raise QwinkError(f"{source}: no answer; {dict(Counter(r.error for r in replies))}")
    minutes = sum(turn.minutes for turn in turns)
    return Figures(
        source,
        len(answered),
        round(len(answered) / minutes, 2),
        round(sum(reply.num_tokens for reply in answered) / minutes / 60, 2),
        summarise(gaps),
        summarise([r.first_token_ms for r in answered if r.first_token_ms is not None]),
        dict(Counter(reply.error for reply in replies if reply.error is not None)),
    )


async def run_turn(source: str, artifact: str, plan: argparse.Namespace, seed: int) -> Turn:
    """One server process of a checkout, used for `plan.minutes`."""
    with tempfile.TemporaryDirectory(prefix="qwink-users-") as folder:
        flags = ["--model", artifact, "--threads", str(plan.threads), "--no-disk-cache"]
        server = ServerProcess(flags, Path(folder), source)
        try:
            await server.start()
            return await _use(server, plan, seed)
        finally:
            server.kill()


async def _use(server: ServerProcess, plan: argparse.Namespace, seed: int) -> Turn:
    limits = httpx.Limits(max_connections=None)
    root = f"{server.address}/v1/"
    async with httpx.AsyncClient(
        base_url=root, timeout=600.0, limits=limits, trust_env=False
    ) as http:
        model = await find_model(http)
        warmed = await ask(http, body(model, random.Random(-1), [max(plan.sides)]))
        if warmed.error:
            raise QwinkError(
                f"the first request failed: {warmed.error}; the model may not take pictures of "
                f"{max(plan.sides)}×{max(plan.sides)} px: give smaller ones with --sides"
            )
        begin = time.monotonic()
        deadline = begin + 60 * plan.minutes

        async def user(number: int) -> list[Reply]:
            rng = random.Random(seed * 1000 + number)
            replies = []
            while time.monotonic() < deadline:
                replies.append(await ask(http, body(model, rng, plan.sides)))
            return replies

        found = await asyncio.gather(*(user(number) for number in range(plan.users)))
    replies = tuple(reply for of_user in found for reply in of_user)
    return Turn(replies, (time.monotonic() - begin) / 60)


def body(model: str, rng: random.Random, sides: Sequence[int]) -> dict[str, Any]:
    """A question about a picture that no cache has."""
    side = rng.choice(sides)
    picture = variant(clouds(rng.randrange(40), side), rng.randrange(1 << 40))
    url = f"data:image/jpeg;base64,{base64.b64encode(as_jpeg(picture)).decode()}"
    parts = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": rng.choice(QUESTIONS)},
    ]
    return {
        "model": model,
        "messages": [{"role": "user", "content": parts}],
        "max_tokens": rng.choice(TOKENS),
        "temperature": 1.0,
        "seed": rng.randrange(1 << 30),
        "min_pixels": side * side,
        "max_pixels": side * side,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkouts", nargs="+", metavar="SRC=ARTIFACT")
    parser.add_argument("--users", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=5.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each checkout")
    parser.add_argument(
        "--sides", type=int, nargs="+", default=SIDES, help="of pictures, in pixels"
    )
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--out", type=Path, default=RESULTS / "users.json")
    plan = parser.parse_args(arguments)
    checkouts = [one.rpartition("=") for one in plan.checkouts]
    if not all(source and artifact for source, _, artifact in checkouts):
        parser.error("give each checkout as SRC=ARTIFACT, such as src=nano")
    turns: list[list[Turn]] = [[] for _ in checkouts]
    try:
        for number in range(plan.rounds):
            for (source, _, artifact), done in zip(checkouts, turns, strict=True):
                done.append(asyncio.run(run_turn(source, artifact, plan, number)))
                print(figures(source, done), file=sys.stderr, flush=True)
        found = [figures(one[0], done) for one, done in zip(checkouts, turns, strict=True)]
    except QwinkError as error:
        parser.exit(1, f"{error}\n")
    result: dict[str, Any] = {
        "artifacts": [Path(artifact).name for _, _, artifact in checkouts],
        "users": plan.users,
        "sides": list(plan.sides),
        "minutes": plan.minutes,
        "rounds": plan.rounds,
        "threads": plan.threads,
        "checkouts": [asdict(one) for one in found],
    }
    write(plan.out, record("users", result).document())
    for one in found:
        gap, first = one.gap_ms, one.first_token_ms
        print(
            f"{one.source}: gap p50 {gap.median:.0f} ms, p95 {gap.p95:.0f}; "
            f"first token p50 {first.median:.0f} ms, p95 {first.p95:.0f}; "
            f"{one.answers_per_minute} answers a minute, {one.tokens_per_s} tokens/s; "
            f"errors: {json.dumps(one.errors)}"
        )


if __name__ == "__main__":
    main()
