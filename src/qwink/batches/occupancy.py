"""Whether the engine had work: what limited a run, engine, decoding or disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

LEAST_S = 1.0  # of a run that says something about its limit


@dataclass(frozen=True, slots=True)
class Limit:
    """What a run waited for. Times in seconds; those of reading and decoding over all threads."""

    what: Literal["engine", "decoding", "disk"]
    starved: float  # share of the time in which the engine could have taken more
    engine_s: float  # of the time that was watched
    decoding_s: float
    reading_s: float

    def __str__(self) -> str:
        article = "" if self.what == "decoding" else "the "
        return (
            f"the limit was {article}{self.what}"
            f" (the engine could have taken more pictures {self.starved:.0%} of the time;"
            f" decoding {self.decoding_s:.1f} s, reading {self.reading_s:.1f} s"
            f" of {self.engine_s:.1f} s)"
        )


class Occupancy:
    """Counts requests in the engine and how long they were too few. Safe for threads."""

    def __init__(self, full: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """`full`: with this many requests the engine can take no more."""
        self._full, self._clock = full, clock
        self._count = 0
        self._since: float | None = None  # the last change
        self._watched = self._starved = 0.0
        self._until_last = 0.0, 0.0  # watched and starved when the last request came
        self._reading = self._decoding = 0.0
        self._lock = threading.Lock()

    def enter(self) -> None:
        """A request goes to the engine."""
        with self._lock:
            self._change(1)
            self._until_last = self._watched, self._starved

    def leave(self) -> None:
        """A request has its answer."""
        with self._lock:
            self._change(-1)

    def spent(self, reading_s: float = 0.0, decoding_s: float = 0.0) -> None:
        """Time that a thread took for a picture."""
        with self._lock:
            self._reading += reading_s
            self._decoding += decoding_s

    def limit(self) -> Limit | None:
        """What limited the run up to its last request; None after less than a second."""
        watched, starved = self._until_last
        if watched < LEAST_S:
            return None
        share = starved / watched
        slower: Literal["decoding", "disk"] = (
            "disk" if self._reading > self._decoding else "decoding"
        )
        what: Literal["engine", "decoding", "disk"] = slower if share > 0.5 else "engine"
        return Limit(what, share, watched, self._decoding, self._reading)

    def _change(self, difference: int) -> None:
        now = self._clock()
        if self._since is not None:
            self._watched += now - self._since
            if self._count < self._full:
                self._starved += now - self._since
        self._since = now
        self._count += difference
