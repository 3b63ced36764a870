"""Batches are chosen by what they take, here by a clock that says what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwink.engine.base import Chunk, NewTokens, Traits
from qwink.engine.torch.engine import TorchEngine
from qwink.engine.torch.measure import best_batch, measure_traits
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


class Clocked:
    """An engine whose work takes the time that `cost` says, on a clock of its own."""

    def __init__(self, engine: TorchEngine, encode: float, prefill: float, step: float) -> None:
        self._engine, self._encode, self._prefill, self._step = engine, encode, prefill, step
        self.config, self.now = engine.config, 0.0

    def encode(self, images: Sequence[Patches]) -> Any:
        self.now += 1 + self._encode * len(images)
        return self._engine.encode(images)

    def prefill(self, cache: Any, chunks: Sequence[Chunk]) -> Any:
        self.now += 1 + self._prefill * len(chunks)
        hidden = self._engine.prefill(cache, chunks)
        assert np.isfinite(hidden).all()
        return hidden

    def step(self, cache: Any, runs: Sequence[NewTokens]) -> Any:
        self.now += 1 + self._step * len(runs[0].ids)
        return self._engine.step(cache, runs)


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
    cache = real.open_cache(5, 40)
    assert measure_traits(engine, cache, lambda: engine.now) == Traits(*expected)
    assert measure_traits(engine, real.open_cache(1, 40), lambda: engine.now).prefill_batch == 1
    assert replace(real.traits, spare_slots=0) == Traits()  # nothing is measured on a CPU
