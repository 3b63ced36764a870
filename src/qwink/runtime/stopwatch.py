"""The time of one request, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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
        self._spans: list[tuple[Stage, float, float]] = []  # when stages began and ended

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
        """Count time that the caller measured, up to now."""
        now = time.perf_counter()
        self._spans.append((stage, now - seconds, now))
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

    def join(self, others: Sequence[Stopwatch]) -> None:
        """Count what requests did that ran together for this one. Time that several spent in a
        stage at once counts once, and so does a step that they shared."""
        for stage in STAGES:
            spans = sorted(
                span[1:] for other in others for span in other._spans if span[0] == stage
            )
            seconds, count = _union(spans)
            self._spent[stage] += seconds
            self._num_steps += count if stage == "generate" else 0
            origins = {other._origins[stage] for other in others}
            for origin in ("computed", "reused"):
                if origin in origins and self._origins[stage] != "computed":
                    self._origins[stage] = origin
                    break
        first = others[0]
        for note in first._notes:
            self.note(note)
        self._queue, self._first_token = first._queue, first._first_token

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


def _union(spans: Sequence[tuple[float, float]]) -> tuple[float, int]:
    """The time that is in at least one span, and how many groups of overlapping spans there are."""
    seconds, count, reached = 0.0, 0, 0.0
    for start, end in spans:
        # The spans of one step end one after the other, so that the next step begins within.
        count += start >= reached - 0.5 * (end - start)
        seconds += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return seconds, count
