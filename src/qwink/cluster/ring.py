"""A consistent hash ring: which replicas a key prefers, in order."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator

_POINTS = 128  # of each name: the shares of keys then differ by about a tenth


class Ring:
    """Names on a ring of hashes. Adding or removing one name moves only that name's keys."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._points: list[tuple[int, str]] = sorted(
            point for name in dict.fromkeys(names) for point in _points_of(name)
        )

    def add(self, name: str) -> None:
        """Add a name, which must be new."""
        self._points.extend(_points_of(name))
        self._points.sort()

    def remove(self, name: str) -> None:
        """Remove a name, if it is there."""
        self._points = [point for point in self._points if point[1] != name]

    def walk(self, key: str) -> Iterator[str]:
        """Every name once, from the one that the key prefers most to the one it prefers least."""
        start = bisect_left(self._points, (_hash(key), ""))
        seen = set()
        for index in range(len(self._points)):
            name = self._points[(start + index) % len(self._points)][1]
            if name not in seen:
                seen.add(name)
                yield name


def _points_of(name: str) -> Iterator[tuple[int, str]]:
    return ((_hash(f"{name}#{index}"), name) for index in range(_POINTS))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
