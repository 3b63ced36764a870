"""Requests that wait until there is room for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qwink.errors import Overloaded
from qwink.runtime.prompts import Prompts
from qwink.runtime.request import Request, Ticket
from qwink.runtime.slots import Slots
from qwink.types import Event


@dataclass(frozen=True, slots=True)
class Limits:
    """How many requests a model takes on, and in which pieces."""

    max_running: int = 8
    """Requests whose answers are made together."""
    max_waiting: int = 64
    """Requests that wait beyond them. A further one raises `Overloaded`."""
    prefill_chunk: int = 256
    """Tokens of a prompt that run at once."""
    keep_prompts: bool = True
    """Keep keys and values of finished prompts for later prompts that start alike."""


class Waiting:
    """Any thread may add to `tickets`, the engine's thread takes from them; both hold `lock`."""

    def __init__(
        self,
        limits: Limits,
        prompts: Prompts,
        slots: Slots,
        lock: threading.Condition,
        tell: Callable[[Ticket, Event], None],
    ) -> None:
        self.tickets: deque[Ticket] = deque()
        self._limits, self._prompts, self._slots = limits, prompts, slots
        self._lock, self._tell = lock, tell

    def check(self, request: Request, others: Sequence[Ticket]) -> None:
        """Raises Overloaded if the request would be one too many beside the others."""
        # Cancelled tickets leave at the next step only.
        taken = sum(
            not other.cancelled and other.request.background == request.background
            for other in others
        )
        if taken >= self._limits.max_running + self._limits.max_waiting:
            raise Overloaded(
                f"{self._limits.max_waiting} requests are waiting already; try again shortly"
            )

    def admit(self, num_running: int) -> None:
        """Pass on requests that are to run now, if there is room; tell the others their place.

        `num_running`: answers that are being generated.
        """
        prompts = self._prompts
        for ticket in self._in_order():
            free = self._limits.max_running - num_running - len(prompts.tickets)
            if free <= 0:
                break
            if ticket.request.background and free == 1 < self._limits.max_running:
                break  # the last slot is for those that do not wait in the background
            if not prompts.is_next(ticket):
                break
            if prompts.shares(ticket):
                continue
            ticket.lease = self._slots.acquire(ticket.prompt, ticket.num_tokens)
            if ticket.lease is None:
                break
            with self._lock:
                self.tickets.remove(ticket)
                prompts.add(ticket)
            ticket.watch.dequeued()
        for place, ticket in enumerate(self._in_order(), len(prompts.tickets)):
            if not ticket.announced:
                ticket.announced = True
                self._tell(ticket, Event("", stage="queue", place=place))

    def _in_order(self) -> list[Ticket]:
        with self._lock:
            waiting = list(self.tickets)
        return sorted(waiting, key=self._prompts.order)
