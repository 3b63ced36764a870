"""Sequences being decoded, a token for all of them at each step."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.cache.prefix import PrefixCache, PrefixEntry
from qwink.engine.base import Engine
from qwink.runtime.request import Outcome, Ticket, accept
from qwink.runtime.together import together_or_alone

logger = logging.getLogger(__name__)


class Answers:
    """They sit in the slots of the KV cache from 0 on; one that leaves is replaced by the last."""

    def __init__(self, engine: Engine, cache: Any, prefixes: PrefixCache) -> None:
        self.tickets: list[Ticket] = []  # the one at index i sits in slot i
        self._engine, self._cache, self._prefixes = engine, cache, prefixes

    def join(self, ticket: Ticket, source: int) -> None:
        """Take in a ticket whose prompt is in slot `source`, which is not before the next."""
        slot = len(self.tickets)
        if slot != source:  # someone finished meanwhile
            self._cache.copy(source, slot, ticket.num_prefilled)
        self.tickets.append(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Let a ticket go; the last one moves into its slot."""
        slot, last = self.tickets.index(ticket), len(self.tickets) - 1
        if slot != last:
            mover = self.tickets[last]
            self._cache.copy(last, slot, mover.request.sequence.num_cached)
            self.tickets[slot] = mover
        self.tickets.pop()

    def decode(self) -> list[Outcome]:
        """One token for each. Nobody leaves before all outcomes are there: whoever leaves has the
        last moved into its slot, with all tokens that one has accepted.
        """
        batch = list(self.tickets)
        if not batch:
            return []
        rows = together_or_alone(len(batch), self._run, "sequences")
        return [(ticket, accept(ticket, row)) for ticket, row in zip(batch, rows, strict=True)]

    def _run(self, first: int, stop: int) -> NDArray[np.float32]:
        """Logits [stop - first, vocab] of those in slots `first` to `stop`."""
        batch = self.tickets[first:stop]
        sequences = [ticket.request.sequence for ticket in batch]
        start = time.perf_counter()
        logits = self._engine.decode(
            self._cache,
            first,
            [sequence.last_id for sequence in sequences],
            [sequence.num_cached for sequence in sequences],
            [sequence.position for sequence in sequences],
        )
        for ticket in batch:
            ticket.request.watch.add("generate", time.perf_counter() - start)
        return logits

    def remember(self, ticket: Ticket) -> None:
        """Keep the keys and values of prompt and answer for whoever continues from here."""
        sequence, slot = ticket.request.sequence, self.tickets.index(ticket)
        if sequence.num_cached * self._cache.bytes_per_token > self._prefixes.max_bytes:
            return
        try:
            values = self._cache.read(slot, sequence.num_cached)
        except Exception:  # for want of memory, say; the answer is whole without
            logger.exception("an answer is not remembered")
            return
        self._prefixes.put(PrefixEntry(sequence.cached_ids, sequence.prompt.images, values))
