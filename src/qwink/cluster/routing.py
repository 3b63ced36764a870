"""Which replica gets a request: the one that has its picture or conversation, if it has room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from math import ceil

from qwink.cluster.ring import Ring

_MOST_KEYS = 65_536  # in a table of known keys; the ones used last are kept


class Router:
    """Chooses replicas. It keeps no count of requests: the caller gives the loads.

    The picture decides first, by consistent hashing with bounded loads (Mirrokni, Thorup and
    Zadimoghaddam, 2018): its hash gives an order of the replicas, and the first one with room gets
    the request. A replica has room if, with this request, it has at most `load_factor` times the
    average load, rounded up. A replica that is known to have the picture goes before the others; it
    has room as well while it has fewer requests than `slots`, since nobody waits for a slot there.
    Without a picture, the replica with the longest known start of the conversation gets the request
    if it has room, and otherwise the least loaded one: many conversations have the same start.

    Routers with the same replicas agree about new pictures without talking to each other.
    Use an object in one thread.
    """

    def __init__(self, replicas: Sequence[str], load_factor: float = 1.25, slots: int = 8) -> None:
        """`slots`: how many requests a replica answers at the same time.

        Raises ValueError for a factor below 1, with which no replica might have room.
        """
        if not 1 <= load_factor < float("inf"):
            raise ValueError(f"load_factor is {load_factor}; it must be 1 or more")
        self._factor, self._slots = load_factor, slots
        self._replicas: dict[str, int] = dict.fromkeys(replicas, 0)  # → the turn of its last use
        self._ring = Ring(self._replicas)
        self._turn = 0
        self._pictures = Places(_MOST_KEYS)
        self._starts = Places(_MOST_KEYS)

    @property
    def replicas(self) -> tuple[str, ...]:
        return tuple(self._replicas)

    def add(self, name: str) -> None:
        """Add a replica; nothing happens if it is there."""
        if name not in self._replicas:
            self._replicas[name] = 0
            self._ring.add(name)

    def remove(self, name: str) -> None:
        """Remove a replica and forget what it had; nothing happens if it is not there."""
        if name in self._replicas:
            del self._replicas[name]
            self._ring.remove(name)
            self._pictures.forget(name)
            self._starts.forget(name)

    def limit(self, loads: Mapping[str, int]) -> int:
        """The most requests that a replica may have to get another one that is new to it, once that
        is counted.
        """
        total = 1 + sum(loads.get(name, 0) for name in self._replicas)
        return ceil(self._factor * total / len(self._replicas))

    def choose(self, picture: str | None, starts: Sequence[str], loads: Mapping[str, int]) -> str:
        """The replica for a request, which is remembered as the place of its picture and starts.

        `picture`: any text that identifies the first picture. `starts`: the same for the starts of
        the conversation, from the longest to the shortest. `loads`: the number of requests that
        each replica runs or waits with; a missing one has none. Raises LookupError if there is no
        replica.
        """
        if not self._replicas:
            raise LookupError("there is no replica")
        limit = self.limit(loads)
        if picture is None:
            chosen = self._by_start(starts, loads, limit) or self._least_loaded(loads)
        else:
            having = self._by_picture(picture, starts, loads, max(limit, self._slots))
            chosen = having or self._by_hash(picture, loads, limit)
            self._pictures.put(picture, chosen)
        for start in reversed(starts):
            self._starts.put(start, chosen)
        self._turn += 1
        self._replicas[chosen] = self._turn
        return chosen

    def _by_picture(
        self, picture: str, starts: Sequence[str], loads: Mapping[str, int], limit: int
    ) -> str | None:
        """A replica that got the picture before, best one with the conversation."""
        having = [name for name in self._pictures.get(picture) if loads.get(name, 0) < limit]
        for start in starts:
            for name in having:
                if name in self._starts.get(start):
                    return name
        return having[0] if having else None

    def _by_hash(self, picture: str, loads: Mapping[str, int], limit: int) -> str:
        return next(name for name in self._ring.walk(picture) if loads.get(name, 0) < limit)

    def _by_start(self, starts: Sequence[str], loads: Mapping[str, int], limit: int) -> str | None:
        for start in starts:
            open_ = [name for name in self._starts.get(start) if loads.get(name, 0) < limit]
            if open_:
                return min(open_, key=lambda name: loads.get(name, 0))
        return None

    def _least_loaded(self, loads: Mapping[str, int]) -> str:
        """Of equally loaded ones, the one whose last request was the longest ago."""
        return min(self._replicas, key=lambda name: (loads.get(name, 0), self._replicas[name]))


class Places:
    """The replicas that got each key, for the `most` keys that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: str) -> tuple[str, ...]:
        return self._places.get(key, ())

    def put(self, key: str, name: str) -> None:
        """Add a replica to those of the key, which now counts as used last."""
        names = self._places.pop(key, ())
        self._places[key] = names if name in names else (*names, name)
        if len(self._places) > self._most:
            self._places.popitem(last=False)

    def forget(self, name: str) -> None:
        """Remove a replica from all keys."""
        for key, names in list(self._places.items()):
            if name in names:
                left = tuple(other for other in names if other != name)
                if left:
                    self._places[key] = left
                else:
                    del self._places[key]
