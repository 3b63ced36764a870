"""Requests on their way to their first token: images are encoded, prompts prefilled.

The request with the least rank runs next. Its rank is its remaining work (tokens to encode and
tokens to prefill) plus the work that was done for prompts before it arrived. So a short question
runs before a long document that has begun, in another slot. But requests that arrive after as much
work was done as the document needs do not run before it.

A request whose image is being fetched from a shared store is held for a moment: the others run
meanwhile. After that its image is encoded, until it arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.cache.embeddings import EmbeddingCache
from qwink.engine.base import Chunk, Engine
from qwink.runtime.chunks import Chunks
from qwink.runtime.encoding import Encoding
from qwink.runtime.preparation import PreparedImage
from qwink.runtime.request import Outcome, Ticket, accept
from qwink.runtime.shares import Clock
from qwink.runtime.slots import Slots, common_start
from qwink.runtime.together import together_or_alone
from qwink.types import Event, Patches

Float = NDArray[np.float32]
Tell = Callable[[Ticket, Event], None]

# While answers are generated, a chunk takes about this time. Shorter chunks make the gaps in
# streams shorter, but read the weights more often.
HURRIED_CHUNK_S = 0.2
SHORTEST_CHUNK = 64  # tokens; shorter ones take nearly as long


class Prompts:
    """The tickets that have begun. Those first in order run together, as many as run faster so.

    The others have begun and were overtaken.
    """

    def __init__(
        self,
        engine: Engine,
        cache: Any,
        embeddings: EmbeddingCache,
        slots: Slots,
        chunks: Chunks,
        tell: Tell,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.tickets: list[Ticket] = []
        self.work_done = 0  # tokens encoded or prefilled since the start: what requests age by
        self._engine, self._cache = engine, cache
        self._embeddings, self._slots = embeddings, slots
        self._chunks, self._tell, self._clock = chunks, tell, clock
        self._encodings: dict[Encoding, list[Ticket]] = {}  # and the tickets that began them
        self._tokens_per_second: float | None = None  # of the chunk that ran last

    def close(self) -> None:
        """Release the engine and its cache. Nothing runs afterwards."""
        self._encodings.clear()
        del self._engine, self._cache, self._tell

    def order(self, ticket: Ticket) -> tuple[bool, int, int]:
        """What requests are ordered by: the first to run has the least."""
        if ticket.lease is not None:
            work = self._work(ticket, ticket.num_prefilled)
        elif ticket.estimate is not None:
            work = ticket.estimate
        else:
            work = ticket.estimate = self._work(ticket, self._slots.num_known(ticket.prompt))
        return ticket.request.background, ticket.arrived + work, ticket.number

    def _work(self, ticket: Ticket, num_known: int) -> int:
        """Tokens to encode and to prefill, where the prompt's first `num_known` are known."""
        to_encode = sum(
            image.num_tokens
            for image in _missing_images(ticket, num_known)
            if isinstance(image.content, Patches) and image.key not in self._embeddings
        )
        return len(ticket.prompt) - num_known + to_encode

    def is_next(self, ticket: Ticket) -> bool:
        """Whether a waiting request would run if it were added."""
        ready = self._ready()
        if len(ready) < self._num_together:
            return True
        last = sorted(map(self.order, ready))[self._num_together - 1]
        return self.order(ticket) < last

    def held_until(self) -> float | None:
        """When a request that is held goes on, on the clock of `time.monotonic`.

        None if one can go on now, or if there is none.
        """
        if not self.tickets or self._ready():
            return None
        return min(map(self._held_until, self.tickets))

    def _ready(self) -> list[Ticket]:
        if not self._embeddings.num_fetches:
            return self.tickets
        now = time.monotonic()
        return [ticket for ticket in self.tickets if self._held_until(ticket) <= now]

    def _held_until(self, ticket: Ticket) -> float:
        missing = _missing_images(ticket, ticket.num_prefilled)
        return max((self._embeddings.awaited_until(image.key) for image in missing), default=0.0)

    def shares(self, ticket: Ticket) -> bool:
        """Whether a waiting request shares most of its prompt with one under way.

        It then waits, to reuse what that one computes.
        """
        prompt = ticket.prompt
        found = any(
            2 * common_start(prompt.ids, prompt.images, other.prompt.ids, other.prompt.images)
            > len(prompt)
            for other in self.tickets
        )
        if found:
            ticket.estimate = None  # it will have less to do
        return found

    def add(self, ticket: Ticket) -> None:
        """Take in a ticket that has a lease."""
        assert ticket.lease is not None
        ticket.num_prefilled = ticket.lease.num_reused
        if ticket.num_prefilled:
            ticket.watch.note(f"{ticket.num_prefilled} prompt tokens reused")
            needed = {image.key for image in _missing_images(ticket, ticket.num_prefilled)}
            if needed != {image.key for image in ticket.request.images}:
                ticket.watch.reused("encode")
        self.tickets.append(ticket)

    @property
    def _num_together(self) -> int:
        return max(1, self._engine.traits.prefill_batch)

    def advance(self, *, hurried: bool = False) -> list[Outcome]:
        """One part of the encoder or, if there is nothing to encode, one chunk of each prompt that
        runs. `hurried`: there are answers under way.

        Returns the tickets that have their first text or failed; they stay until they are removed.
        """
        known = [ticket for ticket in self.tickets if ticket.num_prefilled == len(ticket.prompt)]
        if known:  # the logits were kept with the keys and values
            return [(ticket, accept(ticket, _kept_logits(ticket))) for ticket in known]
        first = sorted(self._ready(), key=self.order)[: self._num_together]
        encoding = self._find_encoding(first)
        if encoding is not None:
            return self._encode(encoding)
        return self._prefill(first, hurried=hurried) if first else []

    def _find_encoding(self, tickets: list[Ticket]) -> Encoding | None:
        """Images that the tickets wait for: under way, or to be begun; None if there are none."""
        self._drop_unneeded()
        most = max(1, self._engine.traits.encode_batch)
        missing: dict[str, Patches] = {}
        owners: list[Ticket] = []
        for ticket, image in _all_missing(tickets):
            if image.key in missing:
                continue
            if len(missing) == most:
                break
            found = image.content
            if isinstance(found, Patches):
                under_way = next((one for one in self._encodings if image.key in one.keys), None)
                # An image may arrive from the shared store while it is encoded.
                if under_way is not None and image.key not in self._embeddings:
                    if not missing:
                        return under_way
                    continue
                known = self._embeddings.get(image.key, image.grid)
                if known is None:
                    missing[image.key] = found
                    owners.append(ticket)
                    continue
                found = known
            ticket.encoded[image.key] = found
            ticket.watch.reused("encode")
        if not missing:
            return None
        encoding = Encoding(self._engine, missing)
        self._encodings[encoding] = list(dict.fromkeys(owners))
        for ticket in self._encodings[encoding]:
            self._tell(ticket, Event("", stage="encode"))
        return encoding

    def _drop_unneeded(self) -> None:
        """Forget images under way whose requests have ended."""
        needed = {image.key for _, image in _all_missing(self.tickets)}
        for encoding in [one for one in self._encodings if not one.keys & needed]:
            del self._encodings[encoding]

    def _encode(self, encoding: Encoding) -> list[Outcome]:
        """Run a part, and keep images that are through. Returns the tickets whose images failed."""
        owners = self._encodings[encoding]
        start = self._clock()
        finished = encoding.advance()
        spent = self._clock() - start
        for ticket in owners:
            ticket.watch.add("encode", spent)
        failed: dict[Ticket, Exception] = {}
        for key, outcome in finished:
            users = [t for t, image in _all_missing(self.tickets) if image.key == key]
            if isinstance(outcome, Exception):
                failed |= dict.fromkeys(users, outcome)
                continue
            kept = self._embeddings.put(outcome)
            self.work_done += outcome.num_tokens
            for ticket in users:
                ticket.encoded[key] = kept
                ticket.watch.reused("encode")
        return list(failed.items())

    def _prefill(self, group: list[Ticket], *, hurried: bool) -> list[Outcome]:
        """A chunk of every prompt. Returns the tickets that have their first text or failed."""
        start = self._clock()
        chunks = [self._next_chunk(ticket, hurried=hurried) for ticket in group]
        for ticket, chunk in zip(group, chunks, strict=True):
            if ticket.lease and chunk.start == ticket.lease.num_reused:
                self._tell(ticket, Event("", stage="prefill"))

        def run(first: int, stop: int) -> Float:
            return self._engine.prefill(self._cache, chunks[first:stop])

        through, failed = [], []
        states = together_or_alone(len(group), run, "prompts")
        num_tokens = sum(map(len, chunks))
        self.work_done += num_tokens
        spent = self._clock() - start
        self._tokens_per_second = num_tokens / spent if spent > 0 else None
        for ticket, chunk, state in zip(group, chunks, states, strict=True):
            if isinstance(state, Exception):
                failed.append((ticket, state))
                continue
            self._note(ticket, chunk.stop)
            if chunk.stop == len(chunk.prompt):
                through.append((ticket, state))
        outcomes: list[Outcome] = [*failed, *(self._first_texts(through) if through else [])]
        spent = self._clock() - start
        for ticket in group:
            ticket.watch.add("prefill", spent)
        return outcomes

    def _next_chunk(self, ticket: Ticket, *, hurried: bool) -> Chunk:
        prompt, start = ticket.prompt, ticket.num_prefilled
        most = None
        if hurried and self._tokens_per_second is not None:
            most = int(HURRIED_CHUNK_S * self._tokens_per_second) // SHORTEST_CHUNK * SHORTEST_CHUNK
            most = max(SHORTEST_CHUNK, most)
        stop = self._chunks.stop(prompt, start, most)
        return Chunk(ticket.slot, prompt, ticket.encoded, start, stop)

    def _first_texts(self, through: list[tuple[Ticket, Float]]) -> list[Outcome]:
        def run(first: int, stop: int) -> Float:
            return self._engine.logits(np.stack([state for _, state in through[first:stop]]))

        outcomes = []
        rows = together_or_alone(len(through), run, "first tokens")
        for (ticket, _), row in zip(through, rows, strict=True):
            if isinstance(row, Exception):
                outcomes.append((ticket, accept(ticket, row)))
                continue
            self._note(ticket, len(ticket.prompt), row)
            outcomes.append((ticket, accept(ticket, row[None])))
        return outcomes

    def _note(self, ticket: Ticket, num_tokens: int, logits: Float | None = None) -> None:
        """Say how much of a prompt is computed."""
        ticket.num_prefilled = num_tokens
        if ticket.lease is not None:
            self._slots.advance(ticket.lease, num_tokens, logits)


def _missing_images(ticket: Ticket, num_known: int) -> list[PreparedImage]:
    """Images not encoded yet that tokens behind the first `num_known` belong to."""
    needed = {span.key for span in ticket.prompt.images if span.start + span.length > num_known}
    images = ticket.request.images
    return [one for one in images if one.key in needed and one.key not in ticket.encoded]


def _all_missing(tickets: list[Ticket]) -> Iterator[tuple[Ticket, PreparedImage]]:
    for ticket in tickets:
        for image in _missing_images(ticket, ticket.num_prefilled):
            yield ticket, image


def _kept_logits(ticket: Ticket) -> Float:
    assert ticket.lease is not None
    assert ticket.lease.logits is not None
    return ticket.lease.logits[None]
