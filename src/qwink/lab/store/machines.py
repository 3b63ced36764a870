"""A second machine's first question about a picture that another one has encoded.

Three models are loaded: the first encodes each picture and puts it into Redis, the second finds it
there, the third finds it behind a proxy with the rate of a network. Each round has another picture.
All run on one machine, so Redis and the proxy take time from the encoder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qwink.cache.redis import StoreOptions
from qwink.cache.shared import SharedImages
from qwink.lab.pictures.sample import clouds
from qwink.lab.statistics import Summary, paired_ratio, summarise
from qwink.lab.store.proxy import proxy_process
from qwink.lab.store.server import RedisServer
from qwink.runtime.memory import Memory
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import Result

QUESTION = "What is this?"
NETWORK_BYTES_PER_S, NETWORK_DELAY_S = 117e6, 0.0003  # 1 Gb/s Ethernet, and a switch
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Way:
    """How an answer gets its encoded picture. Times in ms."""

    first_token_ms: Summary
    encode_ms: Summary
    times_faster: Summary  # first token, beside encoding the picture
    reused: int  # answers whose picture was not encoded at all, ...
    cut_short: int  # ... and for which encoding had begun


@dataclass(frozen=True, slots=True)
class Size:
    """One size of pictures: encoded, fetched from Redis at once, or over a network."""

    side: int
    image_tokens: int
    entry_bytes: int
    network_bytes_per_s: float
    encoded: Way
    fetched: Way
    over_network: Way
    equal_answers: int
    rounds: int


def measure(
    model: str, sides: Sequence[int], rounds: int, threads: int, folder: Path
) -> list[Size]:
    """Each size of picture in turn."""
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer(folder))
        network = stack.enter_context(
            proxy_process(server.port, NETWORK_BYTES_PER_S, NETWORK_DELAY_S)
        )
        machines = [
            stack.enter_context(_machine(model, url, threads))
            for url in (server.url, server.url, network)
        ]
        for vlm in machines:
            _ask(vlm, 999_999, 224)
        return [_size(machines, side, rounds) for side in sides]


def _machine(model: str, url: str, threads: int) -> VLM:
    return load(
        model,
        threads=threads,
        context=2048,
        limits=Limits(max_running=1, keep_prompts=False),
        memory=Memory.divide(2 << 30),
        shared=SharedImages.open(StoreOptions(url)),
        speculate="off",
    )


def _size(machines: Sequence[VLM], side: int, rounds: int) -> Size:
    answers: list[list[Result]] = []
    shared = machines[0].scheduler.embeddings.shared
    assert isinstance(shared, SharedImages)
    store = shared.store
    for number in range(rounds):
        before = store.writes["written"], store.num_bytes["write"]
        first = _ask(machines[0], side * 1000 + number, side)
        deadline = time.monotonic() + _PATIENCE_S
        while store.writes["written"] == before[0]:
            if time.monotonic() > deadline:
                raise SystemExit("the picture was not written")
            time.sleep(0.01)
        entry_bytes = store.num_bytes["write"] - before[1]
        others = [_ask(vlm, side * 1000 + number, side) for vlm in machines[1:]]
        answers.append([first, *others])
        for name, result in zip(("encoded", "fetched", "network"), answers[-1], strict=True):
            print(side, name, result.timings, file=sys.stderr, flush=True)
    base = [results[0] for results in answers]
    encoded, fetched, over_network = (
        _way(base, [results[place] for results in answers]) for place in range(3)
    )
    return Size(
        side,
        base[0].usage.image_tokens,
        entry_bytes,
        NETWORK_BYTES_PER_S,
        encoded,
        fetched,
        over_network,
        sum(len({result.text for result in results}) == 1 for results in answers),
        rounds,
    )


def _ask(vlm: VLM, seed: int, side: int) -> Result:
    picture = np.asarray(clouds(seed, side))
    area = side * side
    return vlm.ask(
        picture, QUESTION, min_pixels=area, max_pixels=area, max_tokens=8, temperature=0.0
    )


def _way(base: Sequence[Result], results: Sequence[Result]) -> Way:
    def of(found: Sequence[Result], name: str) -> list[float]:
        return [float(getattr(result.timings, name)) for result in found]

    began = [result.timings.origins["encode"] == "computed" for result in results]
    return Way(
        summarise(of(results, "first_token_ms")),
        summarise(of(results, "encode_ms")),
        paired_ratio(of(base, "first_token_ms"), of(results, "first_token_ms")),
        began.count(False),
        sum(
            late and own.timings.encode_ms < 0.9 * first.timings.encode_ms
            for late, own, first in zip(began, results, base, strict=True)
        ),
    )
