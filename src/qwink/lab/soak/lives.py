"""The lives of a soak's server: when each ends, its memory and its threads."""

from __future__ import annotations

import asyncio
import re
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qwink.lab.process import Sample, ServerProcess
from qwink.lab.soak.store import StoreState, check_store
from qwink.lab.soak.users import Tally
from qwink.lab.soak.wire import exchange

# How long lives last, as shares of the whole time, and how they end.
_KILL, _STOP = signal.SIGKILL, signal.SIGTERM
_FEW = ((0.3, _KILL), (0.3, _STOP), (0.4, _STOP))
_MANY = ((0.1, _KILL), (0.1, _KILL), (0.1, _KILL), (0.1, _STOP), (0.6, _STOP))
_MANY_FROM_S = 120.0
_INTERVAL_S = 1.0
_REPORT_S = 20.0
_FOUND = re.compile(r'^qwink_cache_hits_total\{cache="embeddings_on_disk"\} (\S+)', re.M)


@dataclass(frozen=True, slots=True)
class Life:
    """One life of the process: medians of its first, second and last third, MiB and threads."""

    end: str  # the signal
    exit_code: int
    seconds: float
    rss_mib: tuple[int, int, int]
    threads: tuple[int, int, int]
    most_rss_mib: int
    found_on_disk: int  # pictures that an earlier life, or this one, had encoded
    store: StoreState  # after its end
    samples: tuple[Sample, ...] = field(repr=False)  # one of ten


class Lives:
    """Samples a server and restarts it. `lives` are those that have ended."""

    def __init__(self, server: ServerProcess, store: Path, report: Callable[[str], None]) -> None:
        self._server, self._store, self._report = server, store, report
        self._samples: list[Sample] = []
        self.lives: list[Life] = []

    async def run(self, seconds: float, least: int, tally: Tally) -> None:
        """All lives but the end of the last one, which `end` brings once the users have left.

        A life lasts its share of `seconds`, starting not included, and has at least `least`
        right replies. Raises QwinkError if a restart fails.
        """
        plan = _MANY if seconds >= _MANY_FROM_S else _FEW
        for number, (share, last) in enumerate(plan, 1):
            await self._live(share * seconds, tally.total("right") + least, tally)
            if number < len(plan):
                await self.end(last)
                await self._server.start()

    async def _live(self, seconds: float, until_right: int, tally: Tally) -> None:
        self._samples = []
        next_report = _REPORT_S
        while (now := time.monotonic() - self._server.began) < seconds or (
            tally.total("right") < until_right
        ):
            if sample := self._server.sample():
                self._samples.append(sample)
                if now >= next_report:
                    next_report = now + _REPORT_S
                    self._report(
                        f"{now:6.0f} s: {tally.total()} requests, "
                        f"{tally.total('wrong') + tally.total('server error')} wrong, "
                        f"{sample.rss_mib} MiB, {sample.threads} threads"
                    )
            await asyncio.sleep(_INTERVAL_S)

    async def end(self, number: signal.Signals = _STOP) -> None:
        """End this life, and look at what it leaves in the store."""
        found_on_disk = await self._count_found()
        seconds = time.monotonic() - self._server.began
        code = await self._server.end(number)
        store = await asyncio.to_thread(check_store, self._store)
        rss = [sample.rss_mib for sample in self._samples]
        life = Life(
            number.name,
            code,
            round(seconds, 1),
            thirds(rss),
            thirds([sample.threads for sample in self._samples]),
            max(rss, default=0),
            found_on_disk,
            store,
            tuple(self._samples[::10]),
        )
        self._report(f"{life.end}, exit code {code}; {store.entries} entries in the store")
        self.lives.append(life)

    async def _count_found(self) -> int:
        reply = await exchange(self._server.port, "/metrics", b"")
        found = _FOUND.search(reply.body.decode())
        return int(float(found[1])) if found else 0


def thirds(values: Sequence[int]) -> tuple[int, int, int]:
    """The medians of the first, second and last third; zeros without values."""
    if not values:
        return 0, 0, 0
    size = -(-len(values) // 3)
    parts = (values[:size], values[size : -size or None] or values, values[-size:])
    first, second, last = (round(statistics.median(part)) for part in parts)
    return first, second, last
