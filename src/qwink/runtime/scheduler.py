"""One thread that owns the engine and shares it fairly among requests.

Each turn of the loop does one piece of waiting work (an image to encode or a chunk of a prompt to
prefill) and then one decode step for all running sequences, so that streams keep moving while
others arrive. Sequences being decoded sit in slots 0, 1, ... of the KV cache; the one being
prefilled in the slot after them; a slot that becomes free is filled by the last.

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

import numpy as np
from numpy.typing import NDArray

from qwink.cache.embeddings import EmbeddingCache
from qwink.cache.prefix import PrefixCache, PrefixEntry, common_start
from qwink.engine.base import Engine
from qwink.errors import Cancelled, DeadlineExceeded, EngineStopped, Overloaded, QwinkError
from qwink.runtime.preparation import PreparedImage
from qwink.runtime.request import Listener, Request, Ticket
from qwink.types import EncodedImage, Event, Patches, Result, Usage

logger = logging.getLogger(__name__)

T = TypeVar("T")

MIN_REUSE = 8  # tokens; below that restoring keys and values is not worth a copy


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
        self._errands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._waiting: deque[Ticket] = deque()
        self._prefilling: Ticket | None = None
        self._prefill_slot = 0
        self._running: list[Ticket] = []  # the ticket at index i sits in slot i
        self._numbers = itertools.count()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._main, name="qwink-engine", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting) + (self._prefilling is not None)

    @property
    def num_running(self) -> int:
        return len(self._running)

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
            place = len(self._waiting) - 1 + (self._prefilling is not None)
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
        self._thread.join(timeout_s)
        self.embeddings.close()

    def _tickets(self) -> list[Ticket]:
        under_way = [] if self._prefilling is None else [self._prefilling]
        return [*self._running, *under_way, *self._waiting]

    # The engine thread from here on.

    def _main(self) -> None:
        try:
            while self._wait_for_work():
                self._drop_ended()
                if self._errands:
                    self._run_errand()
                else:
                    self._advance_prompt()
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
            while not (self._running or self._prefilling or self._waiting or self._errands):
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
        if ticket is self._prefilling:
            self._prefilling = None
        elif ticket in self._running:
            self._leave(ticket)
        else:
            with self._wake:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
        self._tell(ticket, error)

    def _leave(self, ticket: Ticket) -> None:
        """Take a sequence out of the batch; the last one moves into its slot."""
        slot, last = self._running.index(ticket), len(self._running) - 1
        if slot != last:
            mover = self._running[last]
            self._cache.copy(last, slot, mover.request.sequence.num_cached)
            self._running[slot] = mover
        self._running.pop()

    def _advance_prompt(self) -> None:
        """Encode one image or prefill one chunk of the prompt at the head of the queue."""
        if self._prefilling is None:
            self._admit()
        ticket = self._prefilling
        if ticket is None:
            return
        try:
            for image in ticket.request.images:
                if image.key not in ticket.encoded and self._encode(ticket, image):
                    return  # one encoder run is enough for one turn
            self._prefill(ticket)
        except Exception as error:  # one request's trouble is its own
            if not isinstance(error, QwinkError):
                logger.exception("a prompt failed")
            self._fail(ticket, error)

    def _admit(self) -> None:
        """Take the next request if a slot and memory for its keys and values are free."""
        with self._wake:
            if not self._waiting or len(self._running) >= self.limits.max_running:
                return
            ticket = self._waiting[0]
            tokens = ticket.num_tokens + sum(running.num_tokens for running in self._running)
            too_much = tokens * self._cache.bytes_per_token > self.limits.kv_bytes
            if too_much and self._running:
                return  # alone, a request may have it all
            self._prefilling = self._waiting.popleft()
            self._prefill_slot = len(self._running)
        ticket.request.watch.dequeued()

    def _encode(self, ticket: Ticket, image: PreparedImage) -> bool:
        """Have the image encoded; True if the encoder ran."""
        watch = ticket.request.watch
        if isinstance(image.content, EncodedImage):
            ticket.encoded[image.key] = image.content
            watch.reused("encode")
            return False
        found = self.embeddings.get(image.key)
        if found is not None:
            ticket.encoded[image.key] = found
            watch.reused("encode")
            return False
        assert isinstance(image.content, Patches)
        self._tell(ticket, Event("", stage="encode"))
        with watch.stage("encode"):
            encoded = self.engine.encode(image.content)
            ticket.encoded[image.key] = self.embeddings.put(encoded)
        return True

    def _prefill(self, ticket: Ticket) -> None:
        request, sequence = ticket.request, ticket.request.sequence
        prompt = sequence.prompt
        if not ticket.admitted:
            ticket.admitted = True
            self._tell(ticket, Event("", stage="prefill"))
            with request.watch.stage("prefill"):
                ticket.num_prefilled = ticket.num_reused = self._restore(ticket)
            if ticket.num_reused:
                request.watch.note(f"{ticket.num_reused} prompt tokens reused")
        start = ticket.num_prefilled
        stop = min(start + self.limits.prefill_chunk, len(prompt))
        with request.watch.stage("prefill"):
            hidden = self.engine.prefill(
                self._cache, self._prefill_slot, prompt, ticket.encoded, start, stop
            )
            ticket.num_prefilled = stop
            if stop < len(prompt):
                return
            text = sequence.accept(self.engine.logits(hidden[None])[0])
        request.watch.first_token()
        slot = len(self._running)
        if slot != self._prefill_slot:  # someone finished meanwhile
            self._cache.copy(self._prefill_slot, slot, len(prompt))
        self._prefilling = None
        self._running.append(ticket)
        self._progress(ticket, text)

    def _restore(self, ticket: Ticket) -> int:
        """Copy keys and values of the longest known start into the slot; its length."""
        prompt, slot = ticket.request.sequence.prompt, self._prefill_slot
        entry, length = self.prefixes.find(prompt.ids, prompt.images)
        source = None
        for index, running in enumerate(self._running):
            other = running.request.sequence.prompt
            shared = common_start(prompt.ids, prompt.images, other.ids, other.images)
            if shared > length:
                source, length = index, shared
        length = min(length, len(prompt) - 1)  # the last token must run, to give logits
        if length < MIN_REUSE:
            return 0
        if source is not None:
            self._cache.copy(source, slot, length)
        elif entry is not None:
            self._cache.write(slot, entry.values[:, :, :, :length])
        return length

    def _decode(self) -> None:
        """One token for every running sequence."""
        batch = list(self._running)
        if not batch:
            return
        outcomes = [
            self._accept(ticket, row)
            for ticket, row in zip(batch, self._logits(batch), strict=True)
        ]
        # Whoever leaves has the last moved into its slot, with all tokens that one has accepted:
        # so nobody leaves before all have.
        for ticket, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._fail(ticket, outcome)
            else:
                self._progress(ticket, outcome)

    def _logits(self, batch: list[Ticket]) -> list[Any]:
        """A row [vocab] for each, or what went wrong for it alone."""
        try:
            return list(self._run(0, batch))
        except Exception:
            logger.exception("a batch failed; its sequences are tried one by one")
        rows: list[Any] = []
        for slot, ticket in enumerate(batch):
            try:
                rows.extend(self._run(slot, [ticket]))
            except Exception as error:
                rows.append(error)
        return rows

    def _run(self, first_slot: int, batch: list[Ticket]) -> NDArray[np.float32]:
        sequences = [ticket.request.sequence for ticket in batch]
        start = time.perf_counter()
        logits = self.engine.decode(
            self._cache,
            first_slot,
            [sequence.last_id for sequence in sequences],
            [sequence.num_cached for sequence in sequences],
            [sequence.position for sequence in sequences],
        )
        for ticket in batch:
            ticket.request.watch.add("generate", time.perf_counter() - start)
        return logits

    def _accept(self, ticket: Ticket, row: Any) -> str | Exception:
        if isinstance(row, Exception):
            return row
        try:
            return ticket.request.sequence.accept(row)
        except Exception as error:
            return error

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
            self._finish(ticket)

    def _finish(self, ticket: Ticket) -> None:
        request, sequence = ticket.request, ticket.request.sequence
        reason = sequence.finish_reason
        assert reason is not None
        self._remember(ticket)
        self._leave(ticket)
        usage = Usage(
            prompt_tokens=len(sequence.prompt),
            completion_tokens=len(sequence.generated),
            image_tokens=sum(span.length for span in sequence.prompt.images),
            cached_tokens=ticket.num_reused,
        )
        result = Result(
            "".join(ticket.pieces),
            reason,
            usage,
            request.watch.timings(),
            request.model,
            request.warnings,
        )
        self._tell(ticket, Event("", result))

    def _remember(self, ticket: Ticket) -> None:
        """Keep the keys and values of prompt and answer for whoever continues from here."""
        sequence, slot = ticket.request.sequence, self._running.index(ticket)
        num_bytes = sequence.num_cached * self._cache.bytes_per_token
        if num_bytes <= self.prefixes.max_bytes:
            values: Any = self._cache.read(slot, sequence.num_cached)
            self.prefixes.put(PrefixEntry(sequence.cached_ids, sequence.prompt.images, values))
