"""A circuit breaker: after several failures in a row, a service is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

State = Literal["closed", "open", "probing"]

NUM_FAILURES = 3  # in a row, before the first pause
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0


class Breaker:
    """Says whether a service may be called. Safe to share between threads.

    While it is closed, all calls pass. After `NUM_FAILURES` in a row it opens and none passes. At
    the end of a pause one call passes as a probe. If the probe succeeds, the breaker closes;
    otherwise the next pause is twice as long.
    """

    def __init__(
        self,
        on_change: Callable[[bool, str], None] = lambda opened, reason: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` is called when it opens, with the reason, and when it closes again."""
        self._on_change, self._clock = on_change, clock
        self._lock = threading.Lock()
        self._num_failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._probe_at = 0.0
        self._state: State = "closed"

    @property
    def state(self) -> State:
        return self._state

    def allows(self) -> bool:
        """Whether a call may be made now. A call that is made reports its end."""
        with self._lock:
            if self._state == "closed":
                return True
            if self._clock() < self._probe_at:
                return False
            # If the end of this probe is never reported, another one passes after a pause.
            self._state, self._probe_at = "probing", self._clock() + self._pause_s
            return True

    def succeeded(self) -> None:
        """A call had an answer, whatever it says."""
        with self._lock:
            opened = self._state != "closed"
            self._state, self._num_failures, self._pause_s = "closed", 0, FIRST_PAUSE_S
        if opened:
            self._on_change(False, "")

    def failed(self, reason: str) -> None:
        """A call had no answer, or none in time."""
        with self._lock:
            self._num_failures += 1
            closed = self._state == "closed"
            if closed and self._num_failures < NUM_FAILURES:
                return
            if self._state == "open":  # begun before it opened
                return
            if not closed:
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._state, self._probe_at = "open", self._clock() + self._pause_s
        if closed:
            self._on_change(True, reason)

    def abandoned(self) -> None:
        """A call was not made after all. If it was the probe, the next call is."""
        with self._lock:
            if self._state == "probing":
                self._state, self._probe_at = "open", self._clock()
