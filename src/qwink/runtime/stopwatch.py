"""The time of one request, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from qwink.types import STAGES, Origin, Stage, Timings


class Stopwatch:
    """Runs from its creation."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._spent: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self._origins: dict[Stage, Origin] = dict.fromkeys(STAGES, "absent")
        self._notes: list[str] = []
        self._num_steps = 0
        self._queue = 0.0
        self._queued_at: float | None = None
        self._first_token: float | None = None

    def again(self) -> Stopwatch:
        """A watch for another answer to the same request, whose preparation is counted here."""
        other = Stopwatch()
        other._started, other._notes = self._started, list(self._notes)
        return other

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Count the time within as `stage`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - start)

    def add(self, stage: Stage, seconds: float) -> None:
        """Count time that the caller measured."""
        self._spent[stage] += seconds
        self._origins[stage] = "computed"

    def step(self, seconds: float) -> None:
        """Count a step of the answer, and its time."""
        self.add("generate", seconds)
        self._num_steps += 1

    def queued(self) -> None:
        """The request begins to wait in the queue."""
        self._queued_at = time.perf_counter()

    def dequeued(self) -> None:
        """The request leaves the queue."""
        if self._queued_at is not None:
            self._queue += time.perf_counter() - self._queued_at
            self._queued_at = None

    def reused(self, stage: Stage) -> None:
        """A stage whose result came from a cache. One that was also computed stays 'computed'."""
        if self._origins[stage] == "absent":
            self._origins[stage] = "reused"

    def note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def first_token(self) -> None:
        if self._first_token is None:
            self._first_token = self._elapsed()

    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    def timings(self) -> Timings:
        """The times so far, in milliseconds."""
        stages = {f"{stage}_ms": spent * 1e3 for stage, spent in self._spent.items()}
        return Timings(
            queue_ms=self._queue * 1e3,
            **stages,
            total_ms=self._elapsed() * 1e3,
            first_token_ms=(self._first_token or 0.0) * 1e3,
            num_steps=self._num_steps,
            origins=dict(self._origins),
            notes=tuple(self._notes),
        )
