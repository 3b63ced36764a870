"""One thread that owns the engine and shares it fairly among requests.

Each turn of the loop does one piece of waiting work (a run of the encoder or a chunk of prompts,
see `prompts`) and then one decode step for all running sequences (see `answers`), so that streams
keep moving while others arrive. Sequences being decoded sit in slots 0, 1, ... of the KV cache;
those being prefilled in the slots after them; a slot that becomes free is filled by the last.

It knows nothing of HTTP or text: requests come with prompt and images, events go to a listener.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from qwink.cache.embeddings import EmbeddingCache
from qwink.cache.prefix import PrefixCache
from qwink.engine.base import Engine
from qwink.errors import Cancelled, DeadlineExceeded, EngineStopped, Overloaded, QwinkError
from qwink.runtime.answers import Answers
from qwink.runtime.prompts import Prompts
from qwink.runtime.request import Listener, Request, Ticket
from qwink.types import Event

logger = logging.getLogger(__name__)

T = TypeVar("T")

STEP_S = 30.0  # longer than any one step of an engine


@dataclass(frozen=True, slots=True)
class Limits:
    """What the scheduler takes on. `kv_bytes` bounds prompts and answers under way together."""

    max_running: int = 8
    max_waiting: int = 64
    prefill_chunk: int = 256
    kv_bytes: int = 4 << 30


class Scheduler:
    """Runs requests on an engine, in a thread of its own. Close it when done."""

    def __init__(
        self,
        engine: Engine,
        context: int,
        limits: Limits,
        embeddings: EmbeddingCache,
        prefixes: PrefixCache,
    ) -> None:
        self.engine, self.limits = engine, limits
        self.embeddings, self.prefixes = embeddings, prefixes
        self.num_generated = 0  # tokens since the start
        self.error: BaseException | None = None  # what ended the engine thread
        self._cache = engine.open_cache(limits.max_running, context)
        self._answers = Answers(engine, self._cache, prefixes)
        self._prompts = Prompts(
            engine, self._cache, embeddings, prefixes, limits.prefill_chunk, self._tell
        )
        self._errands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._waiting: deque[Ticket] = deque()
        self._numbers = itertools.count()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._main, name="qwink-engine", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting) + len(self._prompts.tickets)

    @property
    def num_running(self) -> int:
        return len(self._answers.tickets)

    @property
    def alive(self) -> bool:
        """Whether the engine thread does its work."""
        return self.error is None and self._thread.is_alive()

    def submit(self, request: Request, listener: Listener) -> Ticket:
        """Queue a request. `listener` is called from the engine thread with each event and, in
        the end, with the event that carries the result or with an exception.

        Raises Overloaded when the queue is full, EngineStopped when nothing runs any more.
        """
        ticket = Ticket(request, listener, next(self._numbers))
        with self._wake:
            if self._closing or not self.alive:
                raise EngineStopped("the engine has stopped; start the service again")
            # Those given up leave the queue at the next step only.
            num_waiting = sum(not other.cancelled for other in self._waiting)
            if num_waiting >= self.limits.max_waiting:
                raise Overloaded(f"{num_waiting} requests are waiting already; try again shortly")
            request.watch.queued()
            self._waiting.append(ticket)
            place = self.num_waiting - 1
            self._wake.notify()
        if place:
            self._tell(ticket, Event("", stage="queue", place=place))
        return ticket

    def call(self, work: Callable[[], T]) -> T:
        """Run `work` on the engine thread, between two steps, and wait for it.

        Raises EngineStopped when nothing runs any more, and whatever `work` raises.
        """
        future: Future[T] = Future()
        with self._wake:
            if self._closing or not self.alive:
                raise EngineStopped("the engine has stopped; start the service again")
            self._errands.append((work, future))
            self._wake.notify()
        return future.result()

    def close(self, timeout_s: float = 30.0) -> None:
        """Take nothing new, finish what is under way for up to `timeout_s`, then end the rest."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_s)
        for ticket in self._tickets():
            ticket.cancel()
        with self._wake:
            self._wake.notify()
        # A thread that is still inside an engine when the process ends takes it down with a crash.
        self._thread.join(STEP_S)
        self.embeddings.close()

    def _tickets(self) -> list[Ticket]:
        return [*self._answers.tickets, *self._prompts.tickets, *self._waiting]

    # The engine thread from here on.

    def _main(self) -> None:
        try:
            while self._wait_for_work():
                self._drop_ended()
                if self._errands:
                    self._run_errand()
                else:
                    self._advance_prompts()
                self._decode()
        except BaseException as error:  # whatever it was, nobody may be left waiting
            self.error = error
            logger.exception("the engine thread died")
            failure = EngineStopped(f"the engine died: {error}; start the service again")
            for ticket in self._tickets():
                self._tell(ticket, failure)
            for _, future in self._errands:
                future.set_exception(failure)

    def _run_errand(self) -> None:
        work, future = self._errands.popleft()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not (self._tickets() or self._errands):
                if self._closing:
                    return False
                self._wake.wait()
            return True

    def _tell(self, ticket: Ticket, message: Event | Exception) -> None:
        """A listener's own trouble is its own."""
        try:
            ticket.listener(message)
        except Exception:
            logger.exception("a listener failed; its request is cancelled")
            ticket.cancel()

    def _ended(self, ticket: Ticket) -> QwinkError | None:
        if ticket.cancelled:
            return Cancelled("the request was cancelled")
        deadline = ticket.request.deadline
        if deadline is not None and time.monotonic() > deadline:
            return DeadlineExceeded("the answer took longer than the request's deadline allows")
        return None

    def _drop_ended(self) -> None:
        """Tell and forget those who are cancelled or late."""
        for ticket in self._tickets():
            error = self._ended(ticket)
            if error is not None:
                self._fail(ticket, error)

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        if ticket in self._prompts.tickets:
            self._prompts.remove(ticket)
        elif ticket in self._answers.tickets:
            self._answers.leave(ticket)
        else:
            with self._wake:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
        self._tell(ticket, error)

    def _advance_prompts(self) -> None:
        """Bring those waiting for their first token a step closer to it."""
        self._admit()
        try:
            outcomes = self._prompts.advance(self._answers.tickets)
        except Exception as error:  # nobody foresaw it: it ends these, not the service
            logger.exception("prompts failed")
            outcomes = [(ticket, error) for ticket in self._prompts.tickets]
        for ticket, outcome in outcomes:
            if isinstance(outcome, Exception):
                self._fail(ticket, outcome)
                continue
            ticket.request.watch.first_token()
            self._answers.join(ticket, self._prompts.take(ticket))
            self._progress(ticket, outcome)

    def _admit(self) -> None:
        """Take requests that can start together, if slots and memory are free for them."""
        prompts = self._prompts
        if prompts.tickets:
            return
        prompts.first_slot = len(self._answers.tickets)
        with self._wake:
            while self._waiting and prompts.fits(self._waiting[0]) and self._has_room():
                prompts.tickets.append(self._waiting.popleft())
        for ticket in prompts.tickets:
            ticket.request.watch.dequeued()

    def _has_room(self) -> bool:
        """Whether the next request has a slot and, where memory is taken as it is used, that."""
        taken = [*self._answers.tickets, *self._prompts.tickets]
        if not taken:
            return True  # alone, a request may have it all
        tokens = sum(ticket.num_tokens for ticket in [*taken, self._waiting[0]])
        too_much = tokens * self._cache.bytes_per_token > self.limits.kv_bytes
        return len(taken) < self._cache.num_slots and not (self._cache.grows and too_much)

    def _decode(self) -> None:
        """One token for every running sequence."""
        for ticket, outcome in self._answers.decode():
            if isinstance(outcome, Exception):
                self._fail(ticket, outcome)
            else:
                self._progress(ticket, outcome)

    def _progress(self, ticket: Ticket, text: str) -> None:
        """Pass new text on; finish the request if it is done."""
        sequence = ticket.request.sequence
        self.num_generated += 1
        if text:
            ticket.pieces.append(text)
        logprobs = sequence.take_logprobs()
        if text or logprobs:
            self._tell(ticket, Event(text, logprobs=logprobs))
        if sequence.finish_reason is not None:
            # First of all the answer: keeping a long prompt copies hundreds of megabytes.
            self._tell(ticket, Event("", ticket.result()))
            self._answers.remember(ticket)
            self._answers.leave(ticket)
