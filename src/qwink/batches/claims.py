"""Which item computes an answer that several items share, and which ones wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from qwink.batches.duplicates import Lookalikes
from qwink.batches.index import Index
from qwink.batches.rows import Row

T = TypeVar("T")
# Which items to work on: without a row, with an error in their row, or both.
Where: TypeAlias = Literal["new", "errors", "new+errors"]
# Whether to work on an item; else it has a row of an earlier run, with an error ("failed") or
# without ("before"), or this run has met its id already.
Verdict: TypeAlias = Literal["yes", "before", "failed", "repeated"]


@dataclass(slots=True, eq=False)
class Lead(Generic[T]):
    """An item whose answer is being computed, and those that wait for it."""

    keys: list[tuple[str, str]]
    forget: Callable[[], None]
    number: Callable[[int], None]
    followers: list[T] = field(default_factory=list)


class Claims(Generic[T]):
    """Knows the answers that exist and those being computed. Safe for threads."""

    def __init__(self, index: Index, most_bits: int | None = None) -> None:
        """`most_bits`: of the difference hashes of pictures that count as equal, None for none."""
        self._index = index
        self._lookalikes = None if most_bits is None else Lookalikes(most_bits)
        self._leads: dict[tuple[str, str], Lead[T]] = {}
        self._near: dict[int, Lead[T]] = {}  # by a number below 0
        self._lock = threading.Lock()

    def load(self, row: Row, place: int) -> None:
        """A row of an earlier run."""
        with self._lock:
            number = self._index.add(row, place, before=True)
            if self._lookalikes and row.dhash and row.answer is not None and row.same_as is None:
                self._lookalikes.add(int(row.dhash, 16), row.question, number)

    def wants(self, item_id: str, where: Where) -> Verdict:
        """Whether to work on an item, which is then taken."""
        with self._lock:
            state = self._index.state(item_id)
            if state in ("taken", "retried"):
                return "repeated"
            new, failed = state is None, state == "failed"
            if not ((new and where != "errors") or (failed and where != "new")):
                return "failed" if failed else "before"
            self._index.take(item_id)
            return "yes"

    def claim(self, row: Row, waiting: T) -> Row | Lead[T] | None:
        """The row with the answer; or a lead, if the caller is to compute it and then to call
        `settle`; or None, if `waiting` was noted as waiting for another.
        """
        assert row.sha256 is not None
        key = row.sha256, row.question
        with self._lock:
            found = self._index.answer(*key)
            lead = self._leads.get(key)
            near = None
            if self._lookalikes and row.dhash and found is None and lead is None:
                near = self._lookalikes.find(int(row.dhash, 16), row.question)
                lead = None if near is None else self._near.get(near)
                found = None if near is None or lead else self._index.numbered(near)
            if found is not None:
                return found
            if lead is not None:
                lead.followers.append(waiting)
                return None
            lead = self._lead(row, key)
            self._leads[key] = lead
            return lead

    def settle(self, row: Row, place: int, lead: Lead[T] | None) -> list[T]:
        """A row that was written. Returns what waited for it."""
        with self._lock:
            number = self._index.add(row, place)
            if lead is None:
                return []
            for key in lead.keys:
                self._leads.pop(key, None)
            if row.answer is None:
                lead.forget()
            else:
                lead.number(number)
            followers, lead.followers = lead.followers, []
            return followers

    def _lead(self, row: Row, key: tuple[str, str]) -> Lead[T]:
        lead: Lead[T] = Lead([key], lambda: None, lambda _: None)
        looks = self._lookalikes
        if looks is not None and row.dhash:
            temporary = -2 - len(self._near)
            while temporary in self._near:
                temporary -= 1
            entry = looks.add(int(row.dhash, 16), row.question, temporary)
            self._near[temporary] = lead

            def number(value: int) -> None:
                del self._near[temporary]
                looks.renumber(row.question, entry, value)

            lead.number, lead.forget = number, lambda: number(-1)
        return lead
