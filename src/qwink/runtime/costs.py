"""What a step costs by its number of rows: estimated from the steps that ran."""

from __future__ import annotations

from collections import deque
from statistics import median

_KEPT = 9  # measurements of the same size; their median is not moved by a few slow ones
_SIZES = 16  # estimated at a time
_STALE = 256  # steps after which the cost without drafts is measured again


class StepCosts:
    """Of steps of a number of sequences, with one row for each and any number of drafts' rows.

    Sizes not measured yet are estimated from those that are, at first by the engine's
    `cheap_rows`, which together take half more time than one.
    """

    def __init__(self, cheap_rows: int) -> None:
        # Without cheap rows each takes as long as the first, and no draft pays.
        self._assumed = 0.5 / (cheap_rows - 1) if cheap_rows > 1 else 1.0
        self._curves: dict[int, _Curve] = {}

    def add(self, num_sequences: int, num_drafts: int, seconds: float) -> None:
        """A step ran."""
        curve = self._curves.get(num_sequences)
        if curve is None:
            curve = self._curves[num_sequences] = _Curve(self._assumed)
        curve.add(num_drafts, seconds)

    def known(self, num_sequences: int) -> bool:
        """Whether the cost of a step without drafts was measured, and not too long ago."""
        curve = self._curves.get(num_sequences)
        return curve is not None and curve.known

    def plain(self, num_sequences: int) -> float:
        """Seconds of a step without drafts. It must be known."""
        return self._curves[num_sequences].plain

    def extra(self, num_sequences: int, num_drafts: int) -> float:
        """Seconds that so many rows of drafts add to a step. The step without must be known."""
        return self._curves[num_sequences].extra(num_drafts)


class _Curve:
    """The cost of a step by the number of its drafts, for one number of sequences."""

    def __init__(self, assumed: float) -> None:
        self._assumed = assumed  # what a row costs, in steps of one row
        self._measured: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._extras: list[float] = []  # by number of drafts; empty after a measurement
        self._plain_ago = 0

    def add(self, num_drafts: int, seconds: float) -> None:
        kept = self._measured.setdefault(num_drafts, deque(maxlen=_KEPT))
        kept.append(seconds)
        self._medians[num_drafts] = median(kept)
        self._extras = []
        self._plain_ago = self._plain_ago + 1 if num_drafts else 0

    @property
    def known(self) -> bool:
        return 0 in self._medians and self._plain_ago < _STALE

    @property
    def plain(self) -> float:
        return self._medians[0]

    def extra(self, num_drafts: int) -> float:
        if num_drafts >= len(self._extras):
            self._extras = self._estimates(num_drafts)
        return self._extras[num_drafts]

    def _estimates(self, most: int) -> list[float]:
        """For 0 to `most` drafts and more: between measured sizes along straight lines."""
        plain = self._medians[0]
        extras, slope = [0.0], self._assumed * plain
        for size in sorted(self._medians)[1:]:
            start, low = len(extras) - 1, extras[-1]
            # More rows never take less time; that they seem to is noise.
            high = max(low, self._medians[size] - plain)
            step = (high - low) / (size - start)
            extras += [low + step * (index + 1) for index in range(size - start)]
            slope = high / size
        while len(extras) <= max(most, _SIZES):
            extras.append(extras[-1] + slope)
        return extras
