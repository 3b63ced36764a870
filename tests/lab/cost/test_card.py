"""Floors: the longer of computing and reading."""

from __future__ import annotations

import pytest

from qwink.export.recipe import RECIPES
from qwink.lab.cost.card import Measured, cost_card, floor
from qwink.lab.cost.ceilings import Ceilings, measure_ceilings
from qwink.lab.cost.work import Work
from qwink.model.config import ModelConfig

CEILINGS = Ceilings(threads=2, int8_gflop_per_s=1000, float_gflop_per_s=100, read_gb_per_s=10)


def test_computing_counts_where_it_takes_longer() -> None:
    # 2 s of int8, 1 s of fp32, 0.5 s of reads.
    found = floor(Work(2 * 10**12, 10**11, 5 * 10**9), CEILINGS, measured_ms=6000)
    assert (found.floor_ms, found.bound_by, found.times_floor) == (3000, "compute", 2)
    assert (found.gflop, found.float_gflop) == (2100, 100)


def test_reading_counts_where_it_takes_longer() -> None:
    found = floor(Work(10**9, 0, 10**9), CEILINGS)
    assert (found.floor_ms, found.bound_by) == (100, "memory")
    assert (found.measured_ms, found.times_floor) == (None, None)


def test_card_of_the_2b(published_2b: ModelConfig) -> None:
    measured = Measured(encode_ms=1377.0, prefill_ms=1387.2, token_ms=None)
    card = cost_card(published_2b, RECIPES["fast"], "onnxruntime", 196, 231, CEILINGS, measured)
    assert card.encode.bound_by == card.prefill.bound_by == "compute"
    # 513 GFLOP at 1000 a second and 61.7 at 100; 632.4 and 6.1.
    assert card.encode.floor_ms == pytest.approx(1129.5, rel=0.001)
    assert card.prefill.floor_ms == pytest.approx(693.9, rel=0.001)
    assert card.encode.times_floor == pytest.approx(1.22, abs=0.01)
    assert card.prefill.times_floor == pytest.approx(2.0, abs=0.01)
    # 0.914 GB of weights, 0.053 of keys and values.
    assert card.token.floor_ms == pytest.approx(96.7, rel=0.001)
    assert (card.token.bound_by, card.token.times_floor) == ("memory", None)


def test_ceilings_of_this_machine() -> None:
    found = measure_ceilings(1, read_bytes=1 << 22)
    assert found.threads == 1
    assert min(found.int8_gflop_per_s, found.float_gflop_per_s, found.read_gb_per_s) > 0
