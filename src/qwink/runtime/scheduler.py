"""One thread that owns the engine and shares it fairly among requests.

Each turn of the loop does one piece of waiting work (a part of the encoder or a chunk of prompts,
see `prompts`) or one step of all answers (see `answers`). `shares` says which: while there are
answers they have at least half of the time. `prompts` says whose work is next: short questions
overtake long ones, and requests age. `slots` says where in the KV cache each request lies.

Requests come with prompt and images; events go to a listener.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from qwink.cache.embeddings import EmbeddingCache
from qwink.engine.base import Engine
from qwink.errors import Cancelled, DeadlineExceeded, EngineStopped, QwinkError
from qwink.runtime.answers import Answers
from qwink.runtime.chunks import Chunks
from qwink.runtime.joined import Joined, Running
from qwink.runtime.prompts import Prompts
from qwink.runtime.request import Listener, Request, Ticket
from qwink.runtime.shares import Clock, Shares
from qwink.runtime.slots import Slots
from qwink.runtime.waiting import Limits, Waiting
from qwink.types import Event

logger = logging.getLogger(__name__)

T = TypeVar("T")

STEP_S = 30.0  # longer than any one step of an engine


class Scheduler:
    """Runs requests on an engine, in a separate thread. Close it when done."""

    def __init__(
        self,
        engine: Engine,
        context: int,
        kv_bytes: int,
        limits: Limits,
        embeddings: EmbeddingCache,
        clock: Clock = time.perf_counter,
    ) -> None:
        """`context`: most tokens of prompt and answer; `kv_bytes` bounds keys and values.

        `clock` measures the work that is shared.
        """
        self.limits = limits
        self.embeddings = embeddings
        self.num_generated = 0  # tokens since the start
        self.error: BaseException | None = None  # what ended the engine thread
        self._cache = engine.open_cache(limits.max_running + engine.traits.spare_slots, context)
        chunks = Chunks(limits.prefill_chunk, anywhere=engine.traits.invariant)
        self.slots = Slots(self._cache, kv_bytes, chunks, keep=limits.keep_prompts)
        self._answers = Answers(engine, self._cache)
        self._prompts = Prompts(
            engine, self._cache, embeddings, self.slots, chunks, self._tell, clock
        )
        self._shares = Shares(clock)
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._numbers = itertools.count()
        self._wake = threading.Condition()
        self._waiting = Waiting(limits, self._prompts, self.slots, self._wake, self._tell)
        embeddings.on_arrival = self._notify
        self._closing = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._main, name="qwink-engine", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting.tickets) + len(self._prompts.tickets)

    @property
    def num_running(self) -> int:
        return len(self._answers.tickets)

    @property
    def num_live_running(self) -> int:
        """Answers under way that are not in the background."""
        return sum(not ticket.request.background for ticket in list(self._answers.tickets))

    @property
    def alive(self) -> bool:
        """Whether the engine thread does its work."""
        return self.error is None and self._thread.is_alive()

    def check(self) -> None:
        """Raises EngineStopped if nothing can be submitted.

        It takes no lock: in a child of a fork, a thread of the parent may hold the lock.
        """
        if os.getpid() != self._process:
            raise EngineStopped("the model was loaded before fork; load it in the child")
        if self._closing:
            raise EngineStopped("the model was closed; load it again")
        if not self.alive:
            raise EngineStopped("the engine has stopped; load the model again")

    def submit(self, request: Request, listener: Listener) -> Running:
        """Queue a request. `listener` is called from the engine thread with each event and, in
        the end, with the event that carries the result or with an exception.

        Raises Overloaded when the queue is full, EngineStopped when nothing runs any more.
        """
        if not request.strips:
            return self._queue(request, listener)
        joined = Joined(request, listener)
        # One slot is left to other requests. Only the first strip can be one too many.
        later = partial(self._queue, admitted=True)
        joined.start(self._queue, later, max(1, self.limits.max_running - 1))
        return joined

    def _queue(self, request: Request, listener: Listener, *, admitted: bool = False) -> Ticket:
        self.check()
        ticket = Ticket(request, listener, next(self._numbers), self._prompts.work_done)
        with self._wake:
            self.check()  # the engine thread holds the lock when it ends
            if not admitted:
                self._waiting.check(request, self._tickets())
            request.watch.queued()
            self._waiting.tickets.append(ticket)
            self._wake.notify()
        return ticket

    def call(self, work: Callable[[], T]) -> T:
        """Run `work` on the engine thread, between two steps, and wait for it.

        Raises EngineStopped when the engine thread has ended, and whatever `work` raises.
        """
        self.check()
        future: Future[T] = Future()
        with self._wake:
            self.check()
            self._calls.append((work, future))
            self._wake.notify()
        return future.result()

    def close(self, timeout_s: float = 30.0) -> None:
        """Refuse new requests, wait up to `timeout_s` for running ones, then end the rest.

        Releases the engine and its cache. Does nothing in a child of a fork.
        """
        if os.getpid() != self._process:
            return
        with self._wake:
            closed = self._closing
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
        if closed or self._thread.is_alive():
            return
        for part in (self._answers, self._prompts, self.slots):
            part.close()
        del self._cache
        if self.error is not None:  # the frames of its traceback refer to the engine
            self.error = self.error.with_traceback(None)

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    def _tickets(self) -> list[Ticket]:
        return [*self._answers.tickets, *self._prompts.tickets, *self._waiting.tickets]

    def _answering(self) -> bool:
        """Whether there are answers that need not wait.

        The strips of a page wait for the prompts of each other, so that their answers run together.
        """
        pages = {ticket.request.page for ticket in self._prompts.tickets}
        waiting = pages - {None}
        return any(ticket.request.page not in waiting for ticket in self._answers.tickets)

    # The engine thread from here on.

    def _main(self) -> None:
        try:
            while self._wait_for_work():
                self._drop_ended()
                if self._shares.prompts_turn(answering=self._answering()):
                    with self._shares.prompts():
                        worked = self._run_call() if self._calls else self._advance_prompts()
                    if worked:
                        continue
                with self._shares.answers():
                    self._step()
        except BaseException as error:
            logger.exception("the engine thread failed")
            failure = EngineStopped(f"the engine failed: {error}; load the model again")
            with self._wake:  # no request is accepted between the error and the sweep
                self.error = error
                tickets, calls = self._tickets(), list(self._calls)
            for ticket in tickets:
                self._tell(ticket, failure)
            for _, future in calls:
                future.set_exception(failure)

    def _run_call(self) -> bool:
        work, future = self._calls.popleft()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return True

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not (self._tickets() or self._calls):
                if self._closing:
                    return False
                self._wake.wait()
            return True

    def _tell(self, ticket: Ticket, message: Event | Exception) -> None:
        """A listener's exception cancels its request only."""
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
        """End the requests that are cancelled or late."""
        for ticket in self._tickets():
            error = self._ended(ticket)
            if error is not None:
                self._fail(ticket, error)

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        # After a failed pass, the slot's contents are not known.
        self._remove(ticket, valid=isinstance(error, Cancelled | DeadlineExceeded))
        self._tell(ticket, error)

    def _remove(self, ticket: Ticket, *, valid: bool = True) -> None:
        """Take a ticket out of wherever it is, and its slot back."""
        with self._wake:
            for group in (self._prompts.tickets, self._answers.tickets, self._waiting.tickets):
                if ticket in group:
                    group.remove(ticket)
        if ticket.lease is not None:
            self.slots.release(ticket.lease, valid=valid)
            ticket.lease = None

    def _holds(self) -> bool:
        """Whether all prompts wait for images to be fetched. Without answers, waits with them."""
        with self._wake:  # an image that arrives notifies
            until = self._prompts.held_until()
            if until is None:
                return False
            unseen = not all(ticket.announced for ticket in self._waiting.tickets)
            if not (self._answers.tickets or self._calls or unseen):
                self._wake.wait(max(0.0, until - time.monotonic()))
            return True

    def _advance_prompts(self) -> bool:
        """Bring the requests that have no token yet a step closer to it, if there are any."""
        self._waiting.admit(self.num_running)
        if not self._prompts.tickets or self._holds():
            return False
        try:
            outcomes = self._prompts.advance(hurried=bool(self._answers.tickets))
        except Exception as error:  # not foreseen: it ends these requests, not the service
            logger.exception("prompts failed")
            outcomes = [(ticket, error) for ticket in self._prompts.tickets]
        for ticket, outcome in outcomes:
            if isinstance(outcome, Exception):
                self._fail(ticket, outcome)
                continue
            ticket.watch.first_token()
            with self._wake:
                self._prompts.tickets.remove(ticket)
                self._answers.tickets.append(ticket)
            self._progress(ticket, outcome)
        return True

    def _step(self) -> None:
        """New tokens for every answer."""
        for ticket, outcome in self._answers.step():
            if isinstance(outcome, Exception):
                self._fail(ticket, outcome)
            else:
                self._progress(ticket, outcome)

    def _progress(self, ticket: Ticket, text: str) -> None:
        """Pass new text on; finish the request if it is done."""
        sequence = ticket.sequence
        self.num_generated += len(sequence.generated) - ticket.num_counted
        ticket.num_counted = len(sequence.generated)
        if text:
            ticket.pieces.append(text)
        logprobs = sequence.take_logprobs()
        if text or logprobs:
            self._tell(ticket, Event(text, logprobs=logprobs))
        if sequence.finish_reason is not None:
            self._tell(ticket, Event("", ticket.result()))
            self._remove(ticket)
