"""Where the time of one request goes, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from qwink.types import STAGES, Origin, Stage, Timings


class Stopwatch:
    """Runs from its creation, but for the time during which the caller holds a streamed piece."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._suspended = 0.0
        self._spent: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self._origins: dict[Stage, Origin] = dict.fromkeys(STAGES, "absent")
        self._notes: list[str] = []
        self._first_token: float | None = None

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Count the time within as `stage`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._spent[stage] += time.perf_counter() - start
            self._origins[stage] = "computed"

    def reused(self, stage: Stage) -> None:
        """A stage whose result was at hand. One that was also computed stays 'computed'."""
        if self._origins[stage] == "absent":
            self._origins[stage] = "reused"

    def note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Do not count the time within."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._suspended += time.perf_counter() - start

    def first_token(self) -> None:
        if self._first_token is None:
            self._first_token = self._elapsed()

    def _elapsed(self) -> float:
        return time.perf_counter() - self._started - self._suspended

    def timings(self) -> Timings:
        """All so far, in milliseconds."""
        stages = {f"{stage}_ms": spent * 1e3 for stage, spent in self._spent.items()}
        return Timings(
            **stages,
            total_ms=self._elapsed() * 1e3,
            first_token_ms=(self._first_token or 0.0) * 1e3,
            origins=dict(self._origins),
            notes=tuple(self._notes),
        )
