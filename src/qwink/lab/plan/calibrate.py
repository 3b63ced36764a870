"""Measures the service times of a model with a server of its own: about half a minute with nano."""

from __future__ import annotations

import asyncio
import base64
import io
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx

from qwink.lab.load.client import find_model
from qwink.lab.pictures.sample import clouds
from qwink.lab.plan.times import Curve, ServiceTimes
from qwink.lab.process import ServerProcess

SIDES = (64, 128, 224, 448, 640)  # pixels; what a model refuses is left out
WORDS = (0, 30, 120, 250)  # added to the question
QUESTION = "Describe this picture in detail."
_ROUNDS = 5
_CROWDS = (1, 2, 4, 8)
_ANSWER = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """One answer: times in ms, as the server and this client took them, and numbers of tokens."""

    timings: dict[str, Any]
    client_ms: float
    image_tokens: int
    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int


def flags(model: str, threads: int) -> list[str]:
    """For `qwink serve`: nothing is kept on disk, and no tokens are drafted."""
    return ["--model", model, "--threads", str(threads), "--no-disk-cache", "--speculate", "off"]


def question(words: int) -> str:
    """With so many words that say nothing."""
    return " ".join([QUESTION, *(f"word{number % 7}" for number in range(words))])


def picture_url(seed: int, side: int) -> str:
    """A data URL: smooth colours as JPEG."""
    file = io.BytesIO()
    clouds(seed, side).save(file, "JPEG", quality=90)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def body(model: str, url: str, side: int, question: str, max_tokens: int) -> dict[str, Any]:
    """A question about a picture that is shown at its size."""
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": question},
    ]
    area = side * side
    return {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "min_pixels": area,
        "max_pixels": area,
    }


async def ask(http: httpx.AsyncClient, request: dict[str, Any]) -> Asked:
    """One whole answer. Raises httpx.HTTPError."""
    began = time.perf_counter()
    response = await http.post("chat/completions", json=request)
    spent = (time.perf_counter() - began) * 1e3
    document = response.raise_for_status().json()
    usage = document["usage"]
    about = usage["prompt_tokens_details"]
    return Asked(
        document["timings"],
        spent,
        about["image_tokens"],
        usage["prompt_tokens"],
        about["cached_tokens"],
        usage["completion_tokens"],
    )


def calibrate(
    model: str, threads: int, report: Callable[[str], None] = lambda _: None
) -> ServiceTimes:
    """Times of `qwink serve` with this model here. Raises QwinkError if it does not start."""
    return asyncio.run(_calibrate(model, threads, report))


async def _calibrate(model: str, threads: int, report: Callable[[str], None]) -> ServiceTimes:
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(flags(model, threads), Path(folder))
        try:
            await server.start()
            async with httpx.AsyncClient(
                base_url=f"{server.address}/v1/", timeout=600, trust_env=False
            ) as http:
                times = await measure(http, await find_model(http), threads, report)
            await server.end(signal.SIGTERM)
        finally:
            server.kill()
    return times


async def measure(
    http: httpx.AsyncClient,
    model: str,
    threads: int,
    report: Callable[[str], None] = lambda _: None,
) -> ServiceTimes:
    """Times of a running server that has nothing else to do."""
    report("calibrating: one request at a time")
    alone = await _alone(http, model)
    report("calibrating: several at once")
    return of_answers(model, threads, alone, await _crowds(http, model))


async def _alone(http: httpx.AsyncClient, model: str) -> list[Asked]:
    found = []
    refused = set()  # more than the model takes
    for number in range(_ROUNDS + 1):
        for side, words in product(SIDES, WORDS):
            if (side, words) in refused:
                continue
            url = picture_url(1000 * side + 10 * words + number, side)
            try:
                asked = await ask(http, body(model, url, side, question(words), 16))
            except httpx.HTTPStatusError as error:
                if error.response.status_code != 400:
                    raise
                refused.add((side, words))
                continue
            if number:  # the first round warms up
                found.append(asked)
    return found


async def _crowds(http: httpx.AsyncClient, model: str) -> list[tuple[int, float]]:
    """(answers at once, seconds of a step), from questions whose picture is known."""
    side = SIDES[1]
    found = []
    for crowd in _CROWDS:
        for number in range(6):
            request = body(model, picture_url(number, side), side, QUESTION, _ANSWER)
            await ask(http, request)  # the next ones find their prompt
            answers = await asyncio.gather(*(ask(http, request) for _ in range(crowd)))
            if number:
                shortest = min(asked.timings["num_steps"] for asked in answers)
                for asked in answers:
                    steps = asked.timings["num_steps"]
                    if steps and 2 * shortest >= steps:  # most of its steps ran beside all others
                        found.append((crowd, asked.timings["generate_ms"] / 1e3 / steps))
    return found


def of_answers(
    model: str, threads: int, alone: Sequence[Asked], steps: Sequence[tuple[int, float]]
) -> ServiceTimes:
    """Medians, by size."""

    def curve(key: Callable[[Asked], int], value: Callable[[Asked], float]) -> Curve:
        sizes: dict[int, list[float]] = {}
        for asked in alone:
            sizes.setdefault(key(asked), []).append(value(asked))
        points = [(float(s), statistics.median(v) / 1e3) for s, v in sorted(sizes.items())]
        return Curve(tuple(points))

    by_crowd: dict[int, list[float]] = {}
    for crowd, seconds in steps:
        by_crowd.setdefault(crowd, []).append(seconds)
    step, slowest = [], 0.0
    for crowd, values in sorted(by_crowd.items()):
        slowest = max(slowest, statistics.median(values))  # more answers never take less time
        step.append((float(crowd), slowest))
    stages = ("fetch", "decode", "resize")
    return ServiceTimes(
        model,
        threads,
        curve(lambda a: a.image_tokens, lambda a: sum(a.timings[f"{s}_ms"] for s in stages)),
        curve(lambda a: a.image_tokens, lambda a: a.timings["encode_ms"]),
        curve(lambda a: a.prompt_tokens - a.cached_tokens, lambda a: a.timings["prefill_ms"]),
        Curve(tuple(step)),
        statistics.median(a.client_ms - _engine_ms(a) for a in alone) / 1e3,
    )


def _engine_ms(asked: Asked) -> float:
    """What the stages took."""
    names = ("fetch", "decode", "resize", "encode", "prefill", "generate")
    return sum(float(asked.timings[f"{name}_ms"]) for name in names)
