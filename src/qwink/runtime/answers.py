"""Answers being generated: one step for all of them at a time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.engine.base import Engine, NewTokens
from qwink.runtime.request import Outcome, Ticket, accept
from qwink.runtime.speculation import Speculation
from qwink.runtime.together import together_or_alone

Float = NDArray[np.float32]


class Answers:
    """The tickets whose prompts are through."""

    def __init__(self, engine: Engine, cache: Any) -> None:
        self.tickets: list[Ticket] = []
        self._engine, self._cache = engine, cache
        self._speculation = Speculation(engine.traits.cheap_rows)

    def close(self) -> None:
        """Let go of the engine and its cache. There is no step afterwards."""
        del self._engine, self._cache

    def step(self) -> list[Outcome]:
        """One token or more for each. Tickets that finish or fail stay until they are removed."""
        batch = list(self.tickets)
        if not batch:
            return []
        sequences = [ticket.sequence for ticket in batch]
        planned = self._speculation.plan(sequences)
        runs = [_new_tokens(ticket, most) for ticket, most in zip(batch, planned, strict=True)]

        def run(first: int, stop: int) -> list[Float]:
            part = runs[first:stop]
            logits = self._engine.step(self._cache, part)
            ends = np.cumsum([run.num_logits for run in part])
            return np.split(logits, ends[:-1])

        start = time.perf_counter()
        results = together_or_alone(len(batch), run, "answers")
        spent = time.perf_counter() - start
        before = [len(sequence.generated) for sequence in sequences]
        for ticket in batch:
            ticket.watch.step(spent)
        outcomes = [
            (ticket, accept(ticket, rows)) for ticket, rows in zip(batch, results, strict=True)
        ]
        if not any(isinstance(rows, Exception) for rows in results):  # else some ran alone
            came = [len(one.generated) - was for one, was in zip(sequences, before, strict=True)]
            num_drafts = sum(len(run.ids) for run in runs) - len(batch)
            self._speculation.ran(sequences, came, num_drafts, spent)
        return outcomes


def _new_tokens(ticket: Ticket, num_drafts: int) -> NewTokens:
    """The tokens to run for a ticket: the last one generated, and drafts of those to come."""
    sequence = ticket.sequence
    ids = sequence.next_ids(num_drafts)
    num_logits = sequence.num_logits
    return NewTokens(ticket.slot, ids, sequence.num_cached, sequence.position, num_logits)
