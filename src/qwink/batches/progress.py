"""How far a batch is."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from qwink.batches.items import Item
from qwink.batches.occupancy import Limit
from qwink.batches.rows import Row


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch is."""

    done: int = 0
    """Rows of this run."""
    errors: int = 0
    """Those with an error."""
    copied: int = 0
    """Those with the answer of an equal picture."""
    skipped: int = 0
    """Those of blank pictures."""
    before: int = 0
    """Items left out because the file has their row."""
    failed_before: int = 0
    """Those whose row has an error."""
    repeated: int = 0
    """Items left out because this run has met their id."""
    total: int | None = None
    """Items to work on in this run; None while they are counted, or if they cannot be."""
    elapsed_s: float = 0.0
    """Seconds since the start of the run."""
    limit: Limit | None = None
    """What limited the run, engine, decoding or disk; with the last progress of a run that took
    more than a second."""

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.done / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def remaining_s(self) -> float | None:
        """Seconds that are left at this rate, if the total is known."""
        if self.total is None or not self.rate:
            return None
        return max(0, self.total - self.done) / self.rate


class Counter:
    """Counts rows as they come, and all items in a thread of its own."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: items that the run works on at most."""
        self._most = most
        self._started = time.perf_counter()
        self._all: int | None = None
        self._stopped = threading.Event()
        self.done = self.errors = self.copied = self.skipped = 0
        self.before = self.failed_before = self.repeated = 0

    def count(self, items: Iterable[Item]) -> None:
        """Begin to count the items, which must be readable again."""
        threading.Thread(
            target=self._count, args=(items,), name="qwink-batch-count", daemon=True
        ).start()

    def stop(self) -> None:
        self._stopped.set()

    def add(self, row: Row) -> None:
        self.done += 1
        self.errors += row.error is not None
        self.copied += row.same_as is not None
        self.skipped += row.skipped is not None

    def progress(self, limit: Limit | None = None) -> Progress:
        total = None if self._all is None else max(0, self._all - self.before - self.repeated)
        if self._most is not None and total is not None:
            total = min(total, self._most)
        return Progress(
            self.done,
            self.errors,
            self.copied,
            self.skipped,
            self.before,
            self.failed_before,
            self.repeated,
            total,
            time.perf_counter() - self._started,
            limit,
        )

    def _count(self, items: Iterable[Item]) -> None:
        number = 0
        try:
            for _ in items:
                number += 1
                if self._stopped.is_set():
                    return
        except Exception:  # the run meets the same error, and reports it
            return
        self._all = number
