"""By how much a broken Redis delays answers: nano with a store, beside nano without one.

Both are asked the same questions in turns, each about a new picture. The difference of the times to
the first token is the delay; it may be negative by noise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qwink.cache.address import StoreOptions
from qwink.cache.shared import SharedImages
from qwink.lab.pictures.sample import clouds
from qwink.lab.statistics import Summary, summarise
from qwink.lab.store.proxy import SlowProxy
from qwink.lab.store.server import RedisServer
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.types import Result

SIDE = 224  # pixels of a picture
FULL = "full (noeviction)"
_BEFORE = 3  # pictures before the fault begins


@dataclass(frozen=True, slots=True)
class Delay:
    """Answers with one fault. `first_delays_ms` are those before the store is skipped."""

    fault: str
    without_store_ms: Summary  # to the first token
    delay_ms: Summary
    first_delays_ms: list[float]
    equal_answers: int
    answers: int
    reads: dict[str, int]
    writes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Broken:
    """A server, and the proxy before it, to be broken."""

    server: RedisServer
    proxy: SlowProxy

    def none(self) -> None:
        """Everything works."""

    def killed(self) -> None:
        """It refuses connections."""
        self.server.kill()

    def stopped(self) -> None:
        """It is silent, and its system accepts connections."""
        self.server.pause()

    def paused(self) -> None:
        """Nothing comes through the network."""
        self.proxy.bytes_per_s = 0.0

    def trickling(self) -> None:
        """A few bytes come now and then."""
        self.proxy.bytes_per_s = 1000.0

    def slow(self) -> None:
        """Each piece of an answer comes 200 ms later."""
        self.proxy.delay_s = 0.2


# What it is called, what happens, and whether Redis has the pictures.
FAULTS: Sequence[tuple[str, Callable[[Broken], None], bool]] = (
    ("none, new pictures", Broken.none, False),
    ("none, known pictures", Broken.none, True),
    ("killed", Broken.killed, True),
    ("stopped (SIGSTOP)", Broken.stopped, True),
    ("network paused", Broken.paused, True),
    ("1000 bytes/s", Broken.trickling, True),
    ("200 ms later", Broken.slow, True),
    (FULL, Broken.none, False),
)


def measure(count: int, folder: Path, threads: int) -> list[Delay]:
    """`count` answers with each fault."""
    delays = []
    with load("nano", threads=threads) as plain:
        for number, (fault, happen, known) in enumerate(FAULTS):
            full = ("--maxmemory", "1mb", "--maxmemory-policy", "noeviction")
            options = full if fault == FULL else ()
            seeds = range(1000 * number, 1000 * number + _BEFORE + count)
            with (
                RedisServer(folder, options) as server,
                SlowProxy(server.port) as proxy,
            ):
                if known:
                    with _with_store(server.url, threads) as (first, _):
                        for seed in seeds[_BEFORE:]:
                            _ask(first, seed)
                with _with_store(proxy.url, threads) as (vlm, shared):
                    for seed in seeds[:_BEFORE]:
                        _ask(vlm, seed)
                        _ask(plain, seed)
                    happen(Broken(server, proxy))
                    pairs = [_pair(plain, vlm, seed) for seed in seeds[_BEFORE:]]
                    delays.append(_delay(fault, pairs, shared))
            print(delays[-1], file=sys.stderr, flush=True)
    return delays


def _pair(plain: VLM, vlm: VLM, seed: int) -> tuple[Result, Result]:
    """Which one is first changes: the second finds a warm processor."""
    order = (plain, vlm) if seed % 2 else (vlm, plain)
    found = {id(one): _ask(one, seed) for one in order}
    return found[id(plain)], found[id(vlm)]


def _delay(fault: str, pairs: Sequence[tuple[Result, Result]], shared: SharedImages) -> Delay:
    delays = [own.timings.first_token_ms - base.timings.first_token_ms for base, own in pairs]
    return Delay(
        fault,
        summarise([base.timings.first_token_ms for base, _ in pairs]),
        summarise(delays),
        [round(one, 1) for one in delays[:4]],
        sum(base.text == own.text for base, own in pairs),
        len(pairs),
        {name: number for name, number in shared.store.reads.items() if number},
        {name: number for name, number in shared.store.writes.items() if number},
    )


@contextmanager
def _with_store(url: str, threads: int) -> Iterator[tuple[VLM, SharedImages]]:
    shared = SharedImages.open(StoreOptions(url))
    with load("nano", threads=threads, shared=shared) as vlm:
        yield vlm, shared


def _ask(vlm: VLM, seed: int) -> Result:
    return vlm.ask(np.asarray(clouds(seed, SIDE)), "What is this?", max_tokens=4, temperature=0.0)
