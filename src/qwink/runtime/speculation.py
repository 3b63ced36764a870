"""How many drafts the sequences of a step get, so that answers come sooner and none later.

A draft's row adds to the time of the step for all sequences in it. So many drafts run as let the
most tokens come in a second, by the chances of the drafts and the measured cost of rows. Each
sequence has an account of the time it gained and lost. No step may lead to a loss of more than a
fiftieth of a sequence's time, even if all drafts are wrong, so that no stream pays for the drafts
of another one. Tokens that an answer's shape forces run as drafts that are certain.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Series
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from qwink.runtime.costs import StepCosts
from qwink.runtime.sequence import Sequence
from qwink.runtime.shares import Clock

MOST_ROWS = 16  # in a step, with those that are no drafts
MOST_LOSS = 0.02  # of a sequence's time
_CREDIT = 0.5  # of a step: what a sequence may lose before it has taken any time
_MOST_GAIN = 2.0  # steps: what is remembered of the time gained


@dataclass(slots=True)
class Account:
    """Of one sequence, in seconds. `lost` is below 0 where drafts gained time."""

    spent: float = 0.0  # as it would have been without drafts
    lost: float = 0.0


class Speculation:
    """Plans the drafts of each step, and learns from how long it took."""

    def __init__(self, cheap_rows: int, clock: Clock = time.perf_counter) -> None:
        self.num_accepted = self.num_rejected = 0  # drafts since the start
        self._costs = StepCosts(cheap_rows)
        self._clock, self._planned_s = clock, 0.0
        self._accounts: WeakKeyDictionary[Sequence, Account] = WeakKeyDictionary()

    def plan(self, sequences: Series[Sequence]) -> list[int]:
        """How many drafts each sequence is to run in the next step."""
        start = self._clock()
        counts = self._plan(sequences)
        self._planned_s = self._clock() - start
        return counts

    def _plan(self, sequences: Series[Sequence]) -> list[int]:
        count = len(sequences)
        counts = [0] * count
        room = MOST_ROWS - count
        if room <= 0 or not any(one.may_draft for one in sequences) or not self._costs.known(count):
            return counts
        plain = self._costs.plain(count)
        extras = [0.0, *(self._costs.extra(count, number) for number in range(1, room + 1))]
        allowed = [self._credit(sequence, plain) for sequence in sequences]
        least = min(allowed)
        risked = max(number for number, extra in enumerate(extras) if extra <= least)
        rows = []
        for index, sequence in enumerate(sequences):
            draft, chance = sequence.draft(room, risked), 1.0
            for number, one in enumerate(draft.chances):
                chance *= one
                rows.append((chance, index, number < draft.num_certain))
        rows.sort(key=lambda row: -row[0])
        best, chosen, tokens = count / plain, 0, float(count)
        for number, (chance, index, certain) in enumerate(rows[:room], 1):
            tokens += chance
            if certain:
                allowed[index] += plain
            rate = tokens / (plain + extras[number])
            if rate > best and extras[number] <= min(allowed):
                best, chosen = rate, number
        for _, index, _ in rows[:chosen]:
            counts[index] += 1
        return counts

    def _credit(self, sequence: Sequence, plain: float) -> float:
        """The time that a sequence may lose in a step whose drafts are all wrong.

        It is never below 0: what was lost before must not keep rows away that cost nothing, or
        tokens that are certain.
        """
        account = self._account(sequence)
        return max(0.0, _CREDIT * plain + MOST_LOSS * account.spent - account.lost)

    def ran(
        self, sequences: Series[Sequence], came: Series[int], num_drafts: int, seconds: float
    ) -> None:
        """The planned step took so long, and so many tokens came for each of the sequences."""
        count = len(sequences)
        self._costs.add(count, num_drafts, seconds)
        if not self._costs.known(count):
            return
        plain = self._costs.plain(count)
        extra = self._costs.extra(count, num_drafts) + self._planned_s
        for sequence, number in zip(sequences, came, strict=True):
            account = self._account(sequence)
            account.spent += number * plain
            lost = account.lost + extra - max(0, number - 1) * plain
            account.lost = max(lost, -_MOST_GAIN * plain)

    def _account(self, sequence: Sequence) -> Account:
        return self._accounts.setdefault(sequence, Account())
