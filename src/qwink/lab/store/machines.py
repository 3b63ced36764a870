"""A second machine's first question about a picture that another one has encoded.

Three models are loaded: the first encodes each picture and puts it into Redis, the second finds it
there, the third finds it behind a proxy with the rate of a network. Each round has another picture.
All run on one machine, so Redis and the proxy take time from the encoder.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qwink.cache.address import StoreOptions
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
    """How a question gets its encoded picture. Times in ms."""

    ready_ms: Summary  # from the question to the start of the prefill
    times_faster: Summary  # beside encoding, round by round
    first_token_ms: float  # of one whole answer, ...
    encode_ms: float  # ... and what it spent in the encoder
    text: str


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


def measure(
    model: str, sides: Sequence[int], rounds: Sequence[int], threads: int, folder: Path
) -> list[Size]:
    """Each size of picture in turn, with as many pictures. The last one gets a whole answer."""
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
            _question(vlm, 999_999, 224, whole=True)
        return [_size(machines, *size) for size in zip(sides, rounds, strict=True)]


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
    shared = machines[0].scheduler.embeddings.shared
    assert isinstance(shared, SharedImages)
    store = shared.store
    ready: list[list[float]] = [[], [], []]
    answers: list[Result] = []
    for number in range(rounds):
        seed = side * 1000 + number
        before = store.writes["written"], store.num_bytes["write"]
        for vlm, times in zip(machines, ready, strict=True):
            spent, answer = _question(vlm, seed, side, whole=number == rounds - 1)
            times.append(spent)
            if answer is not None:
                answers.append(answer)
            if vlm is machines[0]:
                _until(lambda before=before: store.writes["written"] > before[0])  # type: ignore[misc]
        entry_bytes = store.num_bytes["write"] - before[1]
    print(side, ready, [result.timings for result in answers], file=sys.stderr, flush=True)
    encoded, fetched, over_network = (
        Way(
            summarise(times),
            paired_ratio(ready[0], times),
            round(result.timings.first_token_ms, 1),
            round(result.timings.encode_ms, 1),
            result.text,
        )
        for times, result in zip(ready, answers, strict=True)
    )
    return Size(
        side,
        answers[0].usage.image_tokens,
        entry_bytes,
        NETWORK_BYTES_PER_S,
        encoded,
        fetched,
        over_network,
    )


def _question(vlm: VLM, seed: int, side: int, whole: bool) -> tuple[float, Result | None]:
    """Milliseconds until the prefill begins; then the answer, or it is cancelled."""
    picture, area = np.asarray(clouds(seed, side)), side * side
    start = time.perf_counter()
    events = vlm.stream(
        picture, QUESTION, min_pixels=area, max_pixels=area, max_tokens=8, temperature=0.0
    )
    spent, result = 0.0, None
    with closing(events):  # type: ignore[type-var]
        for event in events:
            result = event.result
            if event.stage == "prefill":
                spent = time.perf_counter() - start
                if not whole:
                    break
    _until(lambda: not (vlm.scheduler.num_waiting or vlm.scheduler.num_running))
    return spent * 1e3, result


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit("waited too long for the store or the engine")
        time.sleep(0.005)
