"""Latency and throughput of a server with several users, who each ask one question at a time."""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import httpx
from PIL import Image

from qwink.errors import QwinkError
from qwink.lab.load.client import Reply, ask, find_model
from qwink.lab.pictures.sample import as_jpeg, variant
from qwink.lab.record import Record, record
from qwink.lab.statistics import Summary, summarise


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A server and the requests to it. Each of a level's users asks `rounds` times.

    Every request has a new picture, except for the share `repeats`, which has one of the same
    level's earlier pictures. `extra` are further fields of the request.
    """

    url: str
    picture: Image.Image = field(repr=False)
    levels: tuple[int, ...]
    rounds: int
    question: str
    max_tokens: int
    repeats: float = 0.0
    model: str | None = None  # None: the first that the server lists
    api_key: str | None = field(default=None, repr=False)
    extra: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Level:
    """Figures for one number of users. Summaries are None where no request was answered.

    `token_ms` summarises each answer's mean time of a token after the first, `gap_ms` the waits
    between all pieces of all answers. `errors` counts failures by kind.
    """

    concurrency: int
    num_requests: int
    errors: dict[str, int]
    duration_s: float
    requests_per_s: float
    tokens_per_s: float
    first_token_ms: Summary | None
    token_ms: Summary | None
    gap_ms: Summary | None
    total_ms: Summary | None


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The measurements of `qwink bench load`. Its record has the facts of the client's machine."""

    url: str
    model: str
    question: str
    picture_size: tuple[int, int]
    max_tokens: int
    repeats: float
    levels: tuple[Level, ...]


def measure_load(
    plan: LoadPlan, report: Callable[[str], None] = lambda _: None
) -> Record[LoadResult]:
    """Level by level, after one request to warm up.

    Raises QwinkError if no server answers, or if that first request fails.
    """
    return asyncio.run(_measure(plan, report))


def api_root(url: str) -> str:
    """http://host:8000 or http://host:8000/v1 → the latter with a final slash."""
    root = url.rstrip("/")
    return f"{root}/" if root.endswith("/v1") else f"{root}/v1/"


async def _measure(plan: LoadPlan, report: Callable[[str], None]) -> Record[LoadResult]:
    headers = {"Authorization": f"Bearer {plan.api_key}"} if plan.api_key else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=max(plan.levels))
    async with httpx.AsyncClient(
        base_url=api_root(plan.url),
        headers=headers,
        timeout=plan.timeout_s,
        limits=limits,
        trust_env=False,  # a proxy would change the times
    ) as http:
        model = plan.model or await find_model(http)
        pictures = _Pictures(plan)
        report("warming up")
        first = await ask(http, _body(plan, model, pictures.new()))
        if first.error:
            raise QwinkError(f"{plan.url}: the first request failed: {first.error}")
        levels = []
        for concurrency in plan.levels:
            report(f"{concurrency} at once")
            bodies = [_body(plan, model, url) for url in pictures.series(concurrency * plan.rounds)]
            levels.append(await _level(http, concurrency, bodies))
    result = LoadResult(
        plan.url,
        model,
        plan.question,
        plan.picture.size,
        plan.max_tokens,
        plan.repeats,
        tuple(levels),
    )
    return record("load", result)


class _Pictures:
    """Data URLs of variants of the picture."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        # Random, since the server may have cached the variants of an earlier run.
        self._next = random.SystemRandom().randrange(1 << 40)
        self._random = random.Random(0)

    def new(self) -> str:
        self._next += 1
        jpeg = as_jpeg(variant(self._plan.picture, self._next))
        return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"

    def series(self, count: int) -> list[str]:
        """`count` URLs, of which about the share `repeats` are equal to earlier ones."""
        urls: list[str] = []
        for _ in range(count):
            again = urls and self._random.random() < self._plan.repeats
            urls.append(self._random.choice(urls) if again else self.new())
        return urls


def _body(plan: LoadPlan, model: str, picture_url: str) -> dict[str, Any]:
    content = [
        {"type": "image_url", "image_url": {"url": picture_url}},
        {"type": "text", "text": plan.question},
    ]
    return {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": plan.max_tokens,
        "temperature": 0,
        **plan.extra,
    }


async def _level(
    http: httpx.AsyncClient, concurrency: int, bodies: Sequence[dict[str, Any]]
) -> Level:
    """Each user sends the next request when the previous one is answered."""
    waiting = iter(bodies)

    async def user() -> list[Reply]:
        return [await ask(http, body) for body in waiting]

    start = time.perf_counter()
    replies = await asyncio.gather(*(user() for _ in range(concurrency)))
    duration_s = time.perf_counter() - start
    return summarise_level(concurrency, list(chain.from_iterable(replies)), duration_s)


def summarise_level(concurrency: int, replies: Sequence[Reply], duration_s: float) -> Level:
    """Figures of the answered requests, and numbers of the failed ones by kind of error."""
    answered = [reply for reply in replies if reply.error is None]
    return Level(
        concurrency,
        len(replies),
        dict(Counter(reply.error for reply in replies if reply.error is not None)),
        round(duration_s, 6),
        round(len(answered) / duration_s, 4),
        round(sum(reply.num_tokens for reply in answered) / duration_s, 2),
        _summary(reply.first_token_ms for reply in answered),
        _summary(reply.token_ms for reply in answered),
        _summary(gap for reply in answered for gap in reply.gaps_ms),
        _summary(reply.total_ms for reply in answered),
    )


def _summary(values: Iterable[float | None]) -> Summary | None:
    known = [value for value in values if value is not None]
    return summarise(known) if known else None
