"""The server's router, with loads counted along: the same choices, quick for 1000 replicas."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from math import ceil

from qwink.cluster.routing import Router


class Routes(Router):
    """A router of replicas that stay the same. It knows the loads that `started` and `ended` tell;
    `loads` is what to give to `choose`.
    """

    def __init__(self, replicas: Sequence[str], load_factor: float = 1.25) -> None:
        super().__init__(replicas, load_factor)
        self.loads = dict.fromkeys(replicas, 0)
        self._total = 0
        # (load, turn of the last use, place): entries that are out of date are dropped when met.
        self._names = list(self.loads)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._order = [(0, 0, place) for place in range(len(self._names))]

    def started(self, name: str) -> None:
        self._change(name, 1)

    def ended(self, name: str, count: int = 1) -> None:
        self._change(name, -count)

    def _change(self, name: str, difference: int) -> None:
        self.loads[name] += difference
        self._total += difference
        heapq.heappush(self._order, (self.loads[name], self._replicas[name], self._places[name]))

    def limit(self, loads: Mapping[str, int]) -> int:
        return ceil(self._factor * (1 + self._total) / len(self.loads))

    def _least_loaded(self, loads: Mapping[str, int]) -> str:
        while True:
            load, turn, place = self._order[0]
            name = self._names[place]
            if (load, turn) == (self.loads[name], self._replicas[name]):
                return name
            heapq.heapreplace(self._order, (self.loads[name], self._replicas[name], place))
