"""Batches are chosen by the time they take, here on a simulated clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwink.engine.base import Chunk, NewTokens, Traits
from qwink.engine.torch.engine import SPARE_SLOTS, TorchEngine
from qwink.engine.torch.measure import ROWS, best_batch, cheap_rows, measure_traits, time_step
from qwink.types import Patches


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({1: 1.0}, 1),
        ({1: 1.0, 2: 2.0, 4: 4.0}, 1),
        ({1: 1.0, 2: 1.85, 4: 3.7}, 1),  # gains too little
        ({1: 1.0, 2: 1.2, 4: 2.3}, 2),  # four gain little beside two
        ({1: 1.0, 2: 1.9, 4: 3.0}, 4),
        ({1: 1.0, 2: 1.1, 4: 1.3}, 4),
    ],
)
def test_best_batch(seconds: dict[int, float], expected: int) -> None:
    assert best_batch(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({1: 1.0}, 1),
        ({1: 1.0, 2: 1.6}, 1),
        ({1: 1.0, 2: 1.1, 4: 1.5, 8: 1.6}, 4),
        ({1: 1.0, 2: 1.2, 4: 1.3, 8: 1.4}, 8),
        ({1: 1.0, 2: 1.6, 4: 1.4}, 1),  # two tokens must be cheap, too
    ],
)
def test_cheap_rows(seconds: dict[int, float], expected: int) -> None:
    assert cheap_rows(seconds) == expected


class Clocked:
    """An engine on a simulated clock: work takes 1 s, and the given time for each item more."""

    def __init__(self, engine: TorchEngine, encode: float, prefill: float, step: float) -> None:
        self._engine, self._encode, self._prefill, self._step = engine, encode, prefill, step
        self.config, self.now = engine.config, 0.0

    def encode(self, images: Sequence[Patches]) -> Any:
        self.now += 1 + self._encode * len(images)
        return self._engine.encode(images)

    def prefill(self, cache: Any, chunks: Sequence[Chunk]) -> Any:
        self.now += 1 + self._prefill * len(chunks)
        return self._engine.prefill(cache, chunks)

    def step(self, cache: Any, runs: Sequence[NewTokens]) -> Any:
        self.now += 1 + self._step * sum(len(run.ids) for run in runs)
        logits = self._engine.step(cache, runs)
        assert np.isfinite(logits).all()
        assert len(logits) == sum(len(run.ids) for run in runs)
        return logits


@pytest.mark.parametrize(
    ("encode", "prefill", "step", "expected"),
    [
        (100.0, 100.0, 100.0, (1, 1, 1)),
        (0.1, 100.0, 0.1, (4, 1, 4)),
        (100.0, 0.1, 0.001, (1, 4, 16)),
    ],
)
def test_traits(
    tiny_checkpoint: tuple[Path, Any],
    encode: float,
    prefill: float,
    step: float,
    expected: tuple[int, int, int],
) -> None:
    real = TorchEngine(tiny_checkpoint[0], "cpu", threads=1)
    engine: Any = Clocked(real, encode, prefill, step)
    cache = real.open_cache(4, 40)
    assert measure_traits(engine, cache, lambda: engine.now) == Traits(*expected)
    assert measure_traits(engine, real.open_cache(1, 40), lambda: engine.now).prefill_batch == 1
    assert real.traits == Traits(spare_slots=SPARE_SLOTS)  # nothing is measured on a CPU


@pytest.mark.parametrize("capacity", [16, 17, 500])
def test_steps_fit_the_cache(tiny_checkpoint: tuple[Path, Any], capacity: int) -> None:
    engine = TorchEngine(tiny_checkpoint[0], "cpu", threads=1)
    cache = engine.open_cache(1, capacity)
    assert set(time_step(engine, cache, ROWS)) == set(ROWS)
    assert measure_traits(engine, engine.open_cache(1, 5)).cheap_rows <= 4
