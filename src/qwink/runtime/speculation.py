"""How many drafts the sequences of a step get, so that answers come sooner and none later.

A draft's row adds to the time of the step for all sequences in it. So many drafts run as let the
most tokens come in a second, by the chances of the drafts and the measured cost of rows. Each
sequence keeps an account of the time it gained and lost, and no step may lead to a loss of more
than a fiftieth of its time, even if all drafts are wrong: nobody's stream pays for the drafts of
another one.
"""

from __future__ import annotations

from collections.abc import Sequence as Series
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from qwink.runtime.costs import StepCosts
from qwink.runtime.sequence import Sequence

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

    def __init__(self, cheap_rows: int) -> None:
        self._costs = StepCosts(cheap_rows)
        self._accounts: WeakKeyDictionary[Sequence, Account] = WeakKeyDictionary()

    def plan(self, sequences: Series[Sequence]) -> list[int]:
        """How many drafts each sequence is to run in the next step."""
        count = len(sequences)
        counts = [0] * count
        most = self._affordable(sequences)
        if not most:
            return counts
        rows = []
        for index, sequence in enumerate(sequences):
            chance = 1.0
            for one in sequence.draft(most).chances:
                chance *= one
                rows.append((chance, index))
        rows.sort(key=lambda row: -row[0])
        plain = self._costs.plain(count)
        best, number, tokens = count / plain, 0, float(count)
        for num_drafts, (chance, _) in enumerate(rows[:most], 1):
            tokens += chance
            rate = tokens / (plain + self._costs.extra(count, num_drafts))
            if rate > best:
                best, number = rate, num_drafts
        for _, index in rows[:number]:
            counts[index] += 1
        return counts

    def _affordable(self, sequences: Series[Sequence]) -> int:
        """How many drafts may all be wrong without too great a loss for any sequence."""
        count = len(sequences)
        most = MOST_ROWS - count
        if most <= 0 or not self._costs.known(count):
            return 0
        if not any(sequence.may_draft for sequence in sequences):
            return 0
        accounts = [self._account(sequence) for sequence in sequences]
        initial = _CREDIT * self._costs.plain(count)
        credit = min(initial + MOST_LOSS * one.spent - one.lost for one in accounts)
        while most and self._costs.extra(count, most) > credit:
            most -= 1
        return most

    def ran(self, num_sequences: int, num_drafts: int, seconds: float) -> None:
        """A step took so long."""
        self._costs.add(num_sequences, num_drafts, seconds)

    def came(self, sequences: Series[Sequence], counts: Series[int], num_drafts: int) -> None:
        """So many tokens came for each of the sequences."""
        count = len(sequences)
        if not self._costs.known(count):
            return
        plain, extra = self._costs.plain(count), self._costs.extra(count, num_drafts)
        for sequence, number in zip(sequences, counts, strict=True):
            account = self._account(sequence)
            account.spent += number * plain
            account.lost = max(
                account.lost + extra - max(0, number - 1) * plain, -_MOST_GAIN * plain
            )

    def _account(self, sequence: Sequence) -> Account:
        return self._accounts.setdefault(sequence, Account())
