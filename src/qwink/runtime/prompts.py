"""Requests on their way to their first token: images are encoded, prompts prefilled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.cache.embeddings import EmbeddingCache
from qwink.engine.base import Chunk, Engine
from qwink.runtime.chunks import Chunks
from qwink.runtime.request import Outcome, Ticket, accept
from qwink.runtime.slots import Slots, common_start
from qwink.runtime.together import together_or_alone
from qwink.types import EncodedImage, Event, Patches

Float = NDArray[np.float32]
Tell = Callable[[Ticket, Event], None]


class Prompts:
    """The group of tickets under way: as many as the engine gains from running together.

    A new group starts when all have left.
    """

    def __init__(
        self,
        engine: Engine,
        cache: Any,
        embeddings: EmbeddingCache,
        slots: Slots,
        chunks: Chunks,
        tell: Tell,
    ) -> None:
        self.tickets: list[Ticket] = []
        self._engine, self._cache = engine, cache
        self._embeddings, self._slots = embeddings, slots
        self._chunks, self._tell = chunks, tell

    def close(self) -> None:
        """Let go of the engine and its cache. Nothing runs afterwards."""
        del self._engine, self._cache, self._tell

    def fits(self, ticket: Ticket) -> bool:
        """Whether a request gains from running together with the group.

        One that shares most of its prompt with another waits, to reuse what that one computes.
        """
        prompt = ticket.prompt
        return len(self.tickets) < max(1, self._engine.traits.prefill_batch) and not any(
            2 * common_start(prompt.ids, prompt.images, other.prompt.ids, other.prompt.images)
            > len(prompt)
            for other in self.tickets
        )

    def add(self, ticket: Ticket) -> None:
        """Take in a ticket that has a lease."""
        assert ticket.lease is not None
        ticket.num_prefilled = ticket.lease.num_reused
        if ticket.num_prefilled:
            ticket.watch.note(f"{ticket.num_prefilled} prompt tokens reused")
            if _needed_images(ticket) != {image.key for image in ticket.request.images}:
                ticket.watch.reused("encode")
        self.tickets.append(ticket)

    def advance(self) -> list[Outcome]:
        """One run of the encoder or, if there is nothing to encode, one chunk of each prompt.

        Returns the tickets that have their first text or failed; they stay until they are removed.
        """
        known = [ticket for ticket in self.tickets if ticket.num_prefilled == len(ticket.prompt)]
        if known:  # the logits were kept with the keys and values
            return [(ticket, accept(ticket, _kept_logits(ticket))) for ticket in known]
        missing = self._find_images()
        if missing:
            return self._encode(missing)
        return self._prefill() if self.tickets else []

    def _find_images(self) -> dict[str, tuple[Patches, list[Ticket]]]:
        """Images to encode now, by key, and the tickets that they belong to."""
        most = max(1, self._engine.traits.encode_batch)
        missing: dict[str, tuple[Patches, list[Ticket]]] = {}
        for ticket in self.tickets:
            needed = _needed_images(ticket)
            for image in ticket.request.images:
                if image.key in ticket.encoded or image.key not in needed:
                    continue
                if image.key in missing:
                    missing[image.key][1].append(ticket)
                    ticket.watch.reused("encode")
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
                ticket.watch.reused("encode")
        return missing

    def _encode(self, missing: dict[str, tuple[Patches, list[Ticket]]]) -> list[Outcome]:
        """Have images encoded and kept. Returns the tickets whose images failed."""
        patches = [image for image, _ in missing.values()]
        owners = dict.fromkeys(tickets[0] for _, tickets in missing.values())
        for ticket in owners:
            self._tell(ticket, Event("", stage="encode"))
        start = time.perf_counter()

        def run(first: int, stop: int) -> Sequence[EncodedImage]:
            return self._engine.encode(patches[first:stop])

        outcomes = together_or_alone(len(patches), run, "images")
        spent = time.perf_counter() - start
        for ticket in owners:
            ticket.watch.add("encode", spent)
        failed: dict[Ticket, Exception] = {}
        for (key, (_, tickets)), outcome in zip(missing.items(), outcomes, strict=True):
            if isinstance(outcome, Exception):
                failed |= dict.fromkeys(tickets, outcome)
                continue
            kept = self._embeddings.put(outcome)
            for ticket in tickets:
                ticket.encoded[key] = kept
        return list(failed.items())

    def _prefill(self) -> list[Outcome]:
        """A chunk of every prompt. Returns the tickets that have their first text or failed."""
        start = time.perf_counter()
        group = list(self.tickets)
        chunks = [self._next_chunk(ticket) for ticket in group]
        for ticket, chunk in zip(group, chunks, strict=True):
            if ticket.lease and chunk.start == ticket.lease.num_reused:
                self._tell(ticket, Event("", stage="prefill"))

        def run(first: int, stop: int) -> Float:
            return self._engine.prefill(self._cache, chunks[first:stop])

        through, failed = [], []
        states = together_or_alone(len(group), run, "prompts")
        for ticket, chunk, state in zip(group, chunks, states, strict=True):
            if isinstance(state, Exception):
                failed.append((ticket, state))
                continue
            self._note(ticket, chunk.stop)
            if chunk.stop == len(chunk.prompt):
                through.append((ticket, state))
        outcomes: list[Outcome] = [*failed, *(self._first_texts(through) if through else [])]
        spent = time.perf_counter() - start
        for ticket in group:
            ticket.watch.add("prefill", spent)
        return outcomes

    def _next_chunk(self, ticket: Ticket) -> Chunk:
        prompt, start = ticket.prompt, ticket.num_prefilled
        stop = self._chunks.stop(prompt, start)
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


def _needed_images(ticket: Ticket) -> set[str]:
    """Keys of the images that tokens still to be run belong to."""
    return {
        span.key for span in ticket.prompt.images if span.start + span.length > ticket.num_prefilled
    }


def _kept_logits(ticket: Ticket) -> Float:
    assert ticket.lease is not None
    assert ticket.lease.logits is not None
    return ticket.lease.logits[None]
