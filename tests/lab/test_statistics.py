"""Summaries and ratios, against figures computed by hand."""

from __future__ import annotations

import pytest

from qwink.lab.statistics import paired_ratio, summarise


def test_summary() -> None:
    found = summarise([40.0, 10.0, 30.0, 20.0, 50.0])
    assert (found.min, found.median, found.max, found.count) == (10, 30, 50, 5)
    assert found.p95 == pytest.approx(48)
    assert found.spread == pytest.approx(20 / 30, rel=1e-4)


def test_one_value_has_no_spread() -> None:
    found = summarise([7.0])
    assert (found.min, found.median, found.p95, found.max, found.spread) == (7, 7, 7, 7, 0)


def test_zero_is_a_measurement() -> None:
    assert summarise([0.0, 0.0]).spread == 0


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        summarise([])


def test_noise_of_a_round_cancels_in_the_ratio() -> None:
    found = paired_ratio([20.0, 200.0, 40.0], [10.0, 100.0, 20.0])
    assert (found.median, found.min, found.max) == (2, 2, 2)


def test_ratios_need_pairs() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio([1.0, 2.0], [1.0])
