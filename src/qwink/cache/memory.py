"""A least-recently-used mapping bounded in bytes. Safe to share between threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """A value with a size in bytes, such as a NumPy array."""

    @property
    def nbytes(self) -> int: ...


V = TypeVar("V", bound=Sized)


class MemoryCache(Generic[V]):
    """Keeps the values used last, up to `max_bytes` together.

    `num_bytes` is the size of all values, `evictions` the number of values removed to make room.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = self.evictions = 0
        self._values: OrderedDict[str, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        """Whether a value is kept. Does not count as its use."""
        return key in self._values

    def get(self, key: str) -> V | None:
        """The value, which now counts as used last; None if it is not kept."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: str, value: V) -> None:
        """Keep `value` in place of the key's old one, unless it is larger than the whole cache."""
        with self._lock:
            self._remove(key)
            if value.nbytes > self.max_bytes:
                return
            self._values[key] = value
            self.num_bytes += value.nbytes
            while self.num_bytes > self.max_bytes:
                self._remove(next(iter(self._values)))
                self.evictions += 1

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self.num_bytes = 0

    def _remove(self, key: str) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self.num_bytes -= value.nbytes
