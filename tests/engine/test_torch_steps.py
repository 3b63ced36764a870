"""Decode steps of fixed shapes. Recording is played by a function that calls again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from qwink.engine.base import Chunk, NewTokens
from qwink.engine.torch.cache import TorchCache, aligned
from qwink.engine.torch.engine import TorchEngine
from qwink.engine.torch.steps import Steps, at_least, sizes
from tests.checkpoints import write_checkpoint
from tests.parity import TOLERANCE, Case, make_case


class Recorder:
    """Counts recordings; repeats by computing anew, as a graph does on the same inputs."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.count += 1
        compute()
        return compute


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> TorchEngine:
    folder = tmp_path_factory.mktemp("steps") / "checkpoint"
    write_checkpoint(folder)
    return TorchEngine(folder, "cpu", threads=1)


@pytest.mark.parametrize(
    ("smallest", "largest", "expected"),
    [(1, 1, (1,)), (1, 8, (1, 2, 4, 8)), (1, 6, (1, 2, 4, 6)), (256, 64, (64,)), (4, 5, (4, 5))],
)
def test_sizes(smallest: int, largest: int, expected: tuple[int, ...]) -> None:
    assert sizes(smallest, largest) == expected
    for wanted in range(1, largest + 1):
        found = at_least(wanted, expected)
        assert found >= wanted
        assert all(size < wanted or size >= found for size in expected)


def prefilled(engine: TorchEngine, cache: TorchCache, count: int) -> list[Case]:
    """Prompts of different lengths in the first slots, all but their last five tokens."""
    cases = [make_case(engine, [60 + 9 * row], seed=row) for row in range(count)]
    for slot, case in enumerate(cases):
        engine.prefill(cache, [Chunk(slot, case.prompt, {}, 0, len(case.prompt) - 5)])
    return cases


def inputs(cases: list[Case], back: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The tokens `back` from the end: ids, places, positions and slots [4, B]."""
    places = [len(case.prompt) - back for case in cases]
    ids = [case.prompt.ids[place] for case, place in zip(cases, places, strict=True)]
    return np.array([ids, places, places, range(len(cases))], np.int64)


def runs(given: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> list[NewTokens]:
    """The same for the engine."""
    return [NewTokens(s, (i,), place, at) for i, place, at, s in given.T.tolist()]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_padded_steps_say_the_same(engine: TorchEngine, count: int) -> None:
    cache = engine.open_cache(6, 300)
    cases = prefilled(engine, cache, count)
    steps = Steps(cache, partial(engine._step, cache), recorder := Recorder())
    for back in (5, 4, 3):
        given = inputs(cases, back)
        expected = engine.step(cache, runs(given))
        found = steps.run(given).numpy()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    assert recorder.count == len(steps) == 1


def stored(cache: TorchCache, slot: int) -> Tensor:
    """What a slot holds: [layers, 2, KV heads, capacity, head_dim]."""
    layers = [cache.layer(index) for index in range(cache._data.shape[0])]
    both = [torch.stack([keys[slot], values[slot]]) for keys, values in layers]
    return torch.stack(both)[:, :, :, : cache.capacity].clone()


def test_padding_disturbs_nobody(engine: TorchEngine) -> None:
    """Three rows are padded to four; in the slot behind, a prompt is being prefilled."""
    cache = engine.open_cache(4, 100)
    cases = prefilled(engine, cache, 4)
    length = len(cases[3].prompt) - 5
    before = stored(cache, 3)
    steps = Steps(cache, partial(engine._step, cache), Recorder())
    steps.run(inputs(cases[:3], 5))
    assert before[:, :, :, :length].any()
    assert torch.equal(stored(cache, 3), before)


def test_a_recording_for_each_shape(engine: TorchEngine) -> None:
    seen: list[tuple[int, int]] = []

    def step(given: Tensor, length: int) -> Tensor:
        seen.append((given.shape[1], length))
        return engine._step(cache, given, length)

    cache = engine.open_cache(4, 700)
    steps = Steps(cache, step, recorder := Recorder())
    for count, place in ((1, 3), (1, 255), (1, 256), (3, 10), (4, 600), (3, 699)):
        row = [place] * count
        steps.run(np.array([[9] * count, row, row, range(count)], np.int64))
    assert recorder.count == len(steps) == 4
    assert set(seen) == {(1, 256), (1, 512), (4, 256), (4, aligned(700))}


def test_what_cannot_be_recorded_is_computed_all_the_same(
    engine: TorchEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Callable[[], Tensor]) -> Callable[[], Tensor]:
        raise RuntimeError("operation not permitted when stream is capturing")

    cache = engine.open_cache(3, 100)
    cases = prefilled(engine, cache, 3)
    steps = Steps(cache, partial(engine._step, cache), refuse)
    for back in (5, 4):
        given = inputs(cases, back)
        expected = engine.step(cache, runs(given))
        np.testing.assert_allclose(steps.run(given).numpy(), expected, atol=TOLERANCE)
    assert [record.getMessage()[:38] for record in caplog.records] == [
        "a decode step could not be recorded; i"
    ]


def test_running_out_of_memory_is_not_taken_for_that(engine: TorchEngine) -> None:
    def refuse(_: Callable[[], Tensor]) -> Callable[[], Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    cache = engine.open_cache(2, 40)
    steps = Steps(cache, partial(engine._step, cache), refuse)
    with pytest.raises(torch.OutOfMemoryError):
        steps.run(np.array([[9], [0], [0], [0]], np.int64))
    assert len(steps) == 0


def test_a_step_asks_nothing_of_the_host(tmp_path: Path) -> None:
    """Graphs can record only what needs no value: so it must run on tensors that have none."""
    write_checkpoint(tmp_path / "checkpoint")
    engine = TorchEngine(tmp_path / "checkpoint", "cpu", threads=1)
    engine.open_cache(4, 100)
    nowhere = torch.device("meta")
    modules = engine._modules
    for module in (modules.layers, modules.norm, modules.head):
        module.to(nowhere)
    engine._modules = replace(modules, embed_tokens=modules.embed_tokens.to(nowhere))
    first, second = engine._rope
    engine._rope = first.to(nowhere), second.to(nowhere)
    cache = TorchCache(engine.config.text, 4, 100, nowhere, torch.float32)
    given = torch.zeros(4, 4, dtype=torch.int64, device=nowhere)
    logits = engine._step(cache, given, 64)
    assert logits.device == nowhere
    assert logits.shape == (4, engine.config.text.vocab_size)
    with pytest.raises((NotImplementedError, RuntimeError)):
        given.max().item()  # as it would, if it did
