"""Summaries of repeated measurements, and ratios of measurements taken in the same round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Summary:
    """A figure measured several times, in the figure's unit. Percentiles interpolate linearly.

    `spread` is the distance of the quartiles over the median: half of the measurements lie within
    about ± spread / 2 of it. A single outlier does not change it.
    """

    median: float
    p95: float
    min: float
    max: float
    spread: float
    count: int


def summarise(values: Sequence[float]) -> Summary:
    """The summary of at least one value. Raises ValueError without values."""
    if not len(values):
        raise ValueError("nothing was measured")
    low, quarter, median, three_quarters, p95, high = (
        float(x) for x in np.percentile(values, (0, 25, 50, 75, 95, 100))
    )
    spread = (three_quarters - quarter) / median if median else 0.0
    median, p95, low, high, spread = map(_short, (median, p95, low, high, spread))
    return Summary(median, p95, low, high, spread, len(values))


def paired_ratio(base: Sequence[float], own: Sequence[float]) -> Summary:
    """`base` divided by `own`, round by round: if these are times, `own` is so many times faster.

    Noise that lasts for a round affects both and cancels. Raises ValueError for unequal lengths.
    """
    return summarise([b / o for b, o in zip(base, own, strict=True)])


def _short(value: float) -> float:
    """Five significant digits, more than the precision of a measurement."""
    return float(f"{value:.5g}")
