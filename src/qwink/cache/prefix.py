"""Keys and values of earlier prompts, found by the longest common start.

A prompt's identity is its token ids *and* its images' keys: all images share one placeholder
token, so ids alone would hand one picture's KV to a question about another. Both are compared
whole, not by hash.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.types import ImageSpan

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PrefixEntry:
    """Tokens whose keys and values are at hand, and those."""

    ids: Ids  # [n]
    images: tuple[ImageSpan, ...]
    values: NDArray[Any]  # [layers, 2, KV heads, n, head_dim]

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.values.nbytes


class PrefixCache:
    """Least recently used entries go first, once all together exceed `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self.hits = self.misses = self.evictions = 0
        self._entries: OrderedDict[int, PrefixEntry] = OrderedDict()
        self._next = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, ids: Ids, images: Sequence[ImageSpan]) -> tuple[PrefixEntry | None, int]:
        """The entry that shares the longest start with a prompt, and that start's length."""
        with self._lock:
            best, length = None, 0
            for number, entry in self._entries.items():
                shared = common_start(ids, images, entry.ids, entry.images)
                if shared > length:
                    best, length = number, shared
            if best is None:
                self.misses += 1
                return None, 0
            self.hits += 1
            self._entries.move_to_end(best)
            return self._entries[best], length

    def put(self, entry: PrefixEntry) -> None:
        """Keep an entry. Those that it continues are dropped: it serves in their place."""
        with self._lock:
            for number, old in list(self._entries.items()):
                shared = common_start(entry.ids, entry.images, old.ids, old.images)
                if shared == len(entry.ids):  # already there, or more
                    self._entries.move_to_end(number)
                    return
                if shared == len(old.ids):
                    self._remove(number)
            if entry.nbytes > self.max_bytes:
                return
            self._entries[self._next] = entry
            self._next += 1
            self.num_bytes += entry.nbytes
            while self.num_bytes > self.max_bytes:
                self._remove(next(iter(self._entries)))
                self.evictions += 1

    def _remove(self, number: int) -> None:
        self.num_bytes -= self._entries.pop(number).nbytes


def common_start(
    ids: Ids, images: Sequence[ImageSpan], other: Ids, other_images: Sequence[ImageSpan]
) -> int:
    """How many tokens two prompts share from the start, pictures included."""
    length = min(len(ids), len(other))
    different = np.flatnonzero(ids[:length] != other[:length])
    if different.size:
        length = int(different[0])
    known = {span.start: span for span in other_images}
    for span in images:
        if span.start < length and known.get(span.start) != span:
            return span.start
    return length
