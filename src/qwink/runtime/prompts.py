"""Requests on their way to their first token: images are encoded, prompts prefilled.

As many at once as the engine gains from; their prompts sit in neighbouring slots of the KV cache,
behind those of the sequences being decoded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.cache.embeddings import EmbeddingCache
from qwink.cache.prefix import PrefixCache, common_start
from qwink.engine.base import Chunk, Engine
from qwink.runtime.request import Outcome, Ticket, accept
from qwink.runtime.together import together_or_alone
from qwink.types import EncodedImage, Event, Patches

logger = logging.getLogger(__name__)

MIN_REUSE = 8  # tokens; below that restoring keys and values is not worth a copy

Tell = Callable[[Ticket, Event], None]


class Prompts:
    """The group under way; a new one starts when all have left."""

    def __init__(
        self,
        engine: Engine,
        cache: Any,
        embeddings: EmbeddingCache,
        prefixes: PrefixCache,
        chunk: int,
        tell: Tell,
    ) -> None:
        self.tickets: list[Ticket] = []  # the one at index i sits in slot first_slot + i
        self.first_slot = 0
        self._engine, self._cache = engine, cache
        self._embeddings, self._prefixes = embeddings, prefixes
        self._chunk, self._tell = chunk, tell

    def fits(self, ticket: Ticket) -> bool:
        """Whether a request gains from running together with those that are here.

        One that shares most of its prompt with another waits, to copy what that one computes.
        """
        prompt = ticket.request.sequence.prompt
        others = (other.request.sequence.prompt for other in self.tickets)
        return len(self.tickets) < max(1, self._engine.traits.prefill_batch) and not any(
            2 * common_start(prompt.ids, prompt.images, other.ids, other.images) > len(prompt)
            for other in others
        )

    def advance(self, running: Sequence[Ticket]) -> list[Outcome]:
        """One run of the encoder or, if there is nothing to encode, one chunk of each prompt.

        Returns those who are through or failed; they stay until they are taken or removed.
        """
        missing = self._find_images()
        if missing:
            return self._encode(missing)
        return self._prefill(running) if self.tickets else []

    def take(self, ticket: Ticket) -> int:
        """Let a ticket go that is through; its slot, which is the group's first."""
        index, first = self.tickets.index(ticket), self.first_slot
        if index:  # change places with the first
            other, slot = self.tickets[0], first + index
            kept = self._cache.read(first, other.num_prefilled)
            self._cache.copy(slot, first, ticket.num_prefilled)
            self._cache.write(slot, kept)
            self.tickets[index] = other
        del self.tickets[0]
        self.first_slot += 1
        return first

    def remove(self, ticket: Ticket) -> None:
        """Give a ticket up; the last one moves into its slot."""
        index, last = self.tickets.index(ticket), len(self.tickets) - 1
        if index != last:
            mover = self.tickets[last]
            first = self.first_slot
            self._cache.copy(first + last, first + index, mover.num_prefilled)
            self.tickets[index] = mover
        self.tickets.pop()

    def _find_images(self) -> dict[str, tuple[Patches, list[Ticket]]]:
        """Images to encode now, by key, and whose they are."""
        most = max(1, self._engine.traits.encode_batch)
        missing: dict[str, tuple[Patches, list[Ticket]]] = {}
        for ticket in self.tickets:
            for image in ticket.request.images:
                if image.key in ticket.encoded:
                    continue
                if image.key in missing:  # of a request before, in the same moment
                    missing[image.key][1].append(ticket)
                    ticket.request.watch.reused("encode")
                    continue
                if len(missing) == most:
                    return missing
                found = image.content
                if isinstance(found, Patches):
                    known = self._embeddings.get(image.key, image.grid)
                    if known is None:
                        missing[image.key] = (found, [ticket])
                        continue
                    found = known
                ticket.encoded[image.key] = found
                ticket.request.watch.reused("encode")
        return missing

    def _encode(self, missing: dict[str, tuple[Patches, list[Ticket]]]) -> list[Outcome]:
        """Have images encoded and kept. Returns the tickets whose images failed."""
        patches = [image for image, _ in missing.values()]
        owners = dict.fromkeys(tickets[0] for _, tickets in missing.values())
        for ticket in owners:
            self._tell(ticket, Event("", stage="encode"))
        start = time.perf_counter()

        def run(first: int, stop: int) -> Sequence[EncodedImage]:
            return self._engine.encode_many(patches[first:stop])

        outcomes = together_or_alone(len(patches), run, "images")
        spent = time.perf_counter() - start
        for ticket in owners:
            ticket.request.watch.add("encode", spent)
        failed: dict[Ticket, Exception] = {}
        for (key, (_, tickets)), outcome in zip(missing.items(), outcomes, strict=True):
            if isinstance(outcome, Exception):
                failed |= dict.fromkeys(tickets, outcome)
                continue
            kept = self._embeddings.put(outcome)
            for ticket in tickets:
                ticket.encoded[key] = kept
        return list(failed.items())

    def _prefill(self, running: Sequence[Ticket]) -> list[Outcome]:
        """A chunk of every prompt. Returns the tickets that have come to their first text."""
        start = time.perf_counter()
        for slot, ticket in enumerate(self.tickets, self.first_slot):
            if not ticket.admitted:
                ticket.admitted = True
                self._tell(ticket, Event("", stage="prefill"))
                ticket.num_prefilled = ticket.num_reused = self._restore(ticket, slot, running)
        group = list(self.tickets)
        chunks = [self._next_chunk(ticket) for ticket in group]

        def run(first: int, stop: int) -> NDArray[np.float32]:
            slot = self.first_slot + first
            return self._engine.prefill_many(self._cache, slot, chunks[first:stop])

        through, outcomes = [], []
        states = together_or_alone(len(group), run, "prompts")
        for ticket, chunk, state in zip(group, chunks, states, strict=True):
            if isinstance(state, Exception):
                outcomes.append((ticket, state))
                continue
            ticket.num_prefilled = chunk.stop
            if chunk.stop == len(chunk.prompt):
                through.append((ticket, state))
        first: list[Outcome] = self._first_texts(through) if through else []
        spent = time.perf_counter() - start
        for ticket in group:
            ticket.request.watch.add("prefill", spent)
        return outcomes + first

    def _next_chunk(self, ticket: Ticket) -> Chunk:
        prompt, start = ticket.request.sequence.prompt, ticket.num_prefilled
        return Chunk(prompt, ticket.encoded, start, min(start + self._chunk, len(prompt)))

    def _first_texts(self, through: list[tuple[Ticket, NDArray[np.float32]]]) -> list[Outcome]:
        def run(first: int, stop: int) -> NDArray[np.float32]:
            return self._engine.logits(np.stack([state for _, state in through[first:stop]]))

        rows = together_or_alone(len(through), run, "first tokens")
        return [
            (ticket, accept(ticket, row)) for (ticket, _), row in zip(through, rows, strict=True)
        ]

    def _restore(self, ticket: Ticket, slot: int, running: Sequence[Ticket]) -> int:
        """Copy keys and values of the longest known start into the slot; its length."""
        prompt = ticket.request.sequence.prompt
        entry, length = self._prefixes.find(prompt.ids, prompt.images)
        source = None
        for index, other in enumerate(running):
            known = other.request.sequence.prompt
            shared = common_start(prompt.ids, prompt.images, known.ids, known.images)
            if shared > length:
                source, length = index, shared
        length = min(length, len(prompt) - 1)  # the last token must run, to give logits
        if length < MIN_REUSE:
            return 0
        try:
            if source is not None:
                self._cache.copy(source, slot, length)
            elif entry is not None:
                self._cache.write(slot, entry.values[:, :, :, :length])
        except Exception:  # for want of memory, say; it can be computed as well
            logger.exception("a known start could not be restored")
            return 0
        ticket.request.watch.note(f"{length} prompt tokens reused")
        return length
