"""Compares predictions with real replicas on this machine.

    python -m qwink.lab.plan.check [--replicas 2] [--requests 400] [--load 0.5]

Replicas are `qwink serve` processes with a thread each; this process chooses among them with the
router. The times are calibrated with one of them, just before. The simulation then replays what was
asked, with the lengths that the answers had. First tokens are as the server tells them, plus what
the client waited beside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from qwink.lab.load.client import find_model
from qwink.lab.plan.calibrate import Asked, ask, body, flags, measure, picture_url, question
from qwink.lab.plan.replica import Room
from qwink.lab.plan.routes import Routes
from qwink.lab.plan.simulate import ROUTINGS, Percentiles, Prediction, Routing, simulate
from qwink.lab.plan.times import ServiceTimes
from qwink.lab.plan.trace import Arrival
from qwink.lab.process import ServerProcess
from qwink.lab.record import RESULTS, record, write

SIDES, WORDS, MOST = (64, 128, 224), (0, 30, 120, 250), (1, 8, 16)
SECOND = 0.4


@dataclass(frozen=True, slots=True)
class Compared:
    """Predicted and measured with one way of routing. Ratios are predicted over measured."""

    routing: Routing
    predicted: Prediction
    first_token_ms: Percentiles
    total_ms: Percentiles
    found_share: float
    ratios: dict[str, float]


@dataclass(frozen=True, slots=True)
class Check:
    """All that was compared in one run."""

    model: str
    replicas: int
    requests: int
    load: float
    """The rate of requests, as a share of what the replicas could answer."""
    rate: float
    times: dict[str, Any]
    compared: tuple[Compared, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    at_s: float
    seed: int  # of the picture
    side: int
    words: int
    most: int


def questions(count: int, rate: float, seed: int) -> list[_Question]:
    """The share SECOND of them is about a picture shown before, with other words."""
    chance = random.Random(seed)
    asked: list[_Question] = []
    at_s = 0.0
    for number in range(count):
        at_s += chance.expovariate(rate)
        words, most = chance.choice(WORDS), chance.choice(MOST)
        if asked and chance.random() < SECOND:
            before = chance.choice(asked)
            asked.append(_Question(at_s, before.seed, before.side, words, most))
        else:
            picture = 1_000_000 * seed + number
            asked.append(_Question(at_s, picture, chance.choice(SIDES), words, most))
    return asked


async def check(model: str, replicas: int, count: int, load: float) -> Check:
    """Raises QwinkError if a replica does not start."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients = {}
        for number in range(replicas):
            place = folder / str(number)
            place.mkdir()
            server = ServerProcess(flags(model, 1), place)
            stack.callback(server.kill)
            await server.start()
            clients[server.address] = await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"{server.address}/v1/", timeout=600, trust_env=False)
            )
        http = next(iter(clients.values()))
        name = await find_model(http)
        for other in clients.values():  # the first requests of a process take longer
            await asyncio.gather(*(ask(other, _body(name, q)) for q in questions(8, 1.0, 9)))
        times = await measure(http, name, 1, _say)
        rate = load * replicas / _mean_s(times)
        compared = []
        for number, routing in enumerate(ROUTINGS, 1):
            _say(f"{count} requests, {rate:.1f} a second, routed by {routing}")
            asked = questions(count, rate, number)
            answers, first, total = await _run(clients, name, asked, routing)
            arrivals = [_arrival(q, a) for q, a in zip(asked, answers, strict=True)]
            predicted = simulate(arrivals, times, replicas, routing, Room())
            compared.append(_compare(predicted, asked, answers, first, total))
    return Check(name, replicas, count, load, round(rate, 3), times.document(), tuple(compared))


def _body(model: str, asked: _Question) -> dict[str, Any]:
    url = picture_url(asked.seed, asked.side)
    return body(model, url, asked.side, question(asked.words), asked.most)


def _arrival(asked: _Question, answer: Asked) -> Arrival:
    return Arrival(
        asked.at_s,
        answer.prompt_tokens,
        answer.answer_tokens,
        answer.image_tokens,
        f"{asked.seed} {asked.side}",
    )


def _mean_s(times: ServiceTimes) -> float:
    """Seconds of one request alone, on average. nano has five tokens to a word."""
    sample = questions(500, 1.0, 0)
    again = SECOND
    spent = 0.0
    for asked in sample:
        visual = (asked.side / 32) ** 2
        spent += times.request + times.prepare(visual) + (1 - again) * times.encode(visual)
        spent += times.prefill(20 + visual + 5 * asked.words) + asked.most * times.step(1)
    return spent / len(sample)


async def _run(
    clients: dict[str, httpx.AsyncClient], model: str, asked: Sequence[_Question], routing: Routing
) -> tuple[list[Asked], list[float], list[float]]:
    """Answers, and the times of first tokens and whole answers in ms."""
    routes = Routes(list(clients))
    bodies = [_body(model, one) for one in asked]
    began = time.perf_counter()

    async def one(number: int) -> tuple[Asked, float, float]:
        at_s = asked[number].at_s
        await asyncio.sleep(at_s - (time.perf_counter() - began))
        picture = f"{asked[number].seed} {asked[number].side}" if routing == "picture" else None
        address = routes.choose(picture, (), routes.loads)
        routes.started(address)
        try:
            answer = await ask(clients[address], bodies[number])
        finally:
            routes.ended(address)
        total = (time.perf_counter() - began - at_s) * 1e3
        after = answer.timings["total_ms"] - answer.timings["first_token_ms"]
        return answer, total - after, total

    found = await asyncio.gather(*(one(number) for number in range(len(asked))))
    return [a for a, _, _ in found], [f for _, f, _ in found], [t for _, _, t in found]


def _compare(
    predicted: Prediction,
    asked: Sequence[_Question],
    answers: Sequence[Asked],
    first: Sequence[float],
    total: Sequence[float],
) -> Compared:
    measured = {"first_token_ms": _percentiles(first), "total_ms": _percentiles(total)}
    ratios = {
        f"{name} {part}": round(getattr(getattr(predicted, name), part) / getattr(found, part), 3)
        for name, found in measured.items()
        for part in ("p50", "p95")
    }
    shown: set[tuple[int, int]] = set()
    again = there = 0
    for one, answer in zip(asked, answers, strict=True):
        if (one.seed, one.side) in shown:
            again += 1
            there += answer.timings["origins"]["encode"] != "computed"
        shown.add((one.seed, one.side))
    share = round(there / again, 4) if again else 0.0
    return Compared(
        predicted.routing,
        predicted,
        measured["first_token_ms"],
        measured["total_ms"],
        share,
        ratios,
    )


def _percentiles(values: Sequence[float]) -> Percentiles:
    return Percentiles(*(round(float(x), 3) for x in np.percentile(values, (50, 95, 99))))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--out", type=Path, default=RESULTS / "plan.json")
    given = parser.parse_args()
    found = asyncio.run(check(given.model, given.replicas, given.requests, given.load))
    write(given.out, record("plan_check", found).document())
    for one in found.compared:
        print(json.dumps({"routing": one.routing} | one.ratios))
        print(json.dumps(asdict(one)))


if __name__ == "__main__":
    main()
