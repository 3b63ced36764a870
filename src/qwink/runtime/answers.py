"""Answers being generated: one step for all of them at a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.engine.base import Engine, NewTokens
from qwink.runtime.request import Outcome, Ticket, accept
from qwink.runtime.together import together_or_alone

Float = NDArray[np.float32]


class Answers:
    """The tickets whose prompts are through."""

    def __init__(self, engine: Engine, cache: Any) -> None:
        self.tickets: list[Ticket] = []
        self._engine, self._cache = engine, cache

    def close(self) -> None:
        """Let go of the engine and its cache. There is no step afterwards."""
        del self._engine, self._cache

    def step(self) -> list[Outcome]:
        """One token or more for each. Tickets that finish or fail stay until they are removed."""
        batch = list(self.tickets)
        if not batch:
            return []
        # Drafts fill the rows that cost little, in equal shares.
        num_drafts = max(0, self._engine.traits.cheap_rows - len(batch)) // len(batch)
        runs = [_new_tokens(ticket, num_drafts) for ticket in batch]

        def run(first: int, stop: int) -> list[Float]:
            part = runs[first:stop]
            logits = self._engine.step(self._cache, part)
            ends = np.cumsum([run.num_logits for run in part])
            return np.split(logits, ends[:-1])

        start = time.perf_counter()
        results = together_or_alone(len(batch), run, "answers")
        spent = time.perf_counter() - start
        for ticket in batch:
            ticket.watch.add("generate", spent)
        return [(ticket, accept(ticket, rows)) for ticket, rows in zip(batch, results, strict=True)]


def _new_tokens(ticket: Ticket, num_drafts: int) -> NewTokens:
    """The tokens to run for a ticket: the last one generated, and drafts of those to come."""
    sequence = ticket.sequence
    ids = sequence.next_ids(num_drafts)
    num_logits = sequence.num_logits
    return NewTokens(ticket.slot, ids, sequence.num_cached, sequence.position, num_logits)
