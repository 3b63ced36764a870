"""Steps of fixed shapes. A function that computes again takes the place of a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from qwink.engine.base import Chunk, NewTokens
from qwink.engine.torch import steps as steps_module
from qwink.engine.torch.cache import TorchCache, aligned
from qwink.engine.torch.engine import TorchEngine
from qwink.engine.torch.steps import MOST_TOKENS, Ints, Steps, at_least, sizes, step_inputs
from tests.checkpoints import write_checkpoint
from tests.parity import TOLERANCE, make_case, new_tokens


class Recorder:
    """Counts recordings; repeats by computing again from the same input tensors, like a graph."""

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


class Sequences:
    """Prompts of different lengths in some slots, all but their last 24 tokens."""

    def __init__(self, engine: TorchEngine, cache: TorchCache, slots: Sequence[int]) -> None:
        self.slots = slots
        self.prompts = [make_case(engine, [60 + 9 * row], seed=row).prompt for row in slots]
        for slot, prompt in zip(slots, self.prompts, strict=True):
            engine.prefill(cache, [Chunk(slot, prompt, {}, 0, len(prompt) - 24)])

    def runs(self, back: int, counts: Sequence[int]) -> list[NewTokens]:
        """The next tokens from those on that are `back` from the end."""
        return [
            new_tokens(slot, prompt, len(prompt) - back, count)
            for slot, prompt, count in zip(self.slots, self.prompts, counts, strict=True)
        ]


def run(steps: Steps, runs: Sequence[NewTokens]) -> Tensor:
    total = max(run.length + len(run.ids) for run in runs)
    return steps.run(step_inputs(runs, steps.cache.scratch), total)


def unrecorded(engine: TorchEngine, cache: TorchCache, runs: Sequence[NewTokens]) -> Tensor:
    """Hidden states of the same step, by slots' numbers and with no padding of the batch."""
    inputs = torch.from_numpy(step_inputs(runs, cache.scratch))
    return engine._run(cache, inputs, cache.scratch, None)


def close(found: Tensor, expected: Tensor, counts: Sequence[int]) -> None:
    """Compares all but the padding."""
    assert found.shape == expected.shape
    for row, count in enumerate(counts):
        difference = (found[row, :count] - expected[row, :count]).abs().max()
        assert float(difference) <= TOLERANCE


def everything(cache: TorchCache, num_layers: int) -> Tensor:
    """A copy of all keys and values but the scratch rows."""
    layers = [torch.stack(cache.layer(index)) for index in range(num_layers)]
    return torch.stack(layers)[..., : cache.scratch, :].clone()


def test_inputs() -> None:
    runs = [NewTokens(4, (7, 8, 9), 20, 15), NewTokens(1, (5,), 3, 2)]
    assert step_inputs(runs, 64).tolist() == [
        [[4, 4, 4], [1, 1, 1]],
        [[7, 8, 9], [5, 0, 0]],
        [[20, 21, 22], [3, 64, 64]],
        [[15, 16, 17], [2, 0, 0]],
    ]


@pytest.mark.parametrize(
    "slots",
    [(0,), (0, 1, 2), (0, 1, 2, 3, 4), (5,), (1, 2, 3), (0, 2, 5), (3, 0, 5), (2, 1, 0)],
    ids=str,
)
@pytest.mark.parametrize("several", [False, True])
def test_padded_steps_give_the_same(
    engine: TorchEngine, slots: tuple[int, ...], several: bool
) -> None:
    cache = engine.open_cache(6, 300)
    sequences = Sequences(engine, cache, slots)
    steps = Steps(cache, partial(engine._run, cache), recorder := Recorder())
    counts = [3, 1, 2, 1, 3][: len(slots)] if several else [1] * len(slots)
    for back in (24, 23, 22):
        runs = sequences.runs(back, counts)
        expected = unrecorded(engine, cache, runs)
        close(run(steps, runs), expected, counts)
    assert recorder.count == len(steps) == 1


@pytest.mark.parametrize("slots", [(0, 1, 2), (3, 1, 4), (1, 2, 4)], ids=str)
def test_padding_changes_no_tokens(engine: TorchEngine, slots: tuple[int, ...]) -> None:
    """Three rows are padded to four, three tokens to four; the other slots hold prompts."""
    cache = engine.open_cache(5, 100)
    num_layers = engine.config.text.num_layers
    Sequences(engine, cache, [slot for slot in range(5) if slot not in slots])
    sequences = Sequences(engine, cache, slots)
    before = everything(cache, num_layers)
    runs = sequences.runs(24, [3, 1, 2])
    steps = Steps(cache, partial(engine._run, cache), Recorder())
    run(steps, runs)
    after = everything(cache, num_layers)
    for new in runs:  # what the step may write
        span = slice(new.length, new.length + len(new.ids))
        assert (after[:, :, new.slot, :, span] != before[:, :, new.slot, :, span]).any()
        after[:, :, new.slot, :, span] = before[:, :, new.slot, :, span]
    assert before.abs().sum(dim=(0, 1, 3, 4, 5)).all()
    assert torch.equal(after, before)


def same(count: int, slots: Sequence[int], place: int) -> Ints:
    """Inputs of `count` tokens for each slot, the last at `place`."""
    runs = [NewTokens(slot, (9,) * count, place - count + 1, place - count + 1) for slot in slots]
    return step_inputs(runs, 1 << 10)


def test_a_recording_for_each_shape(engine: TorchEngine) -> None:
    seen: list[tuple[int, int, int, bool]] = []

    def step(given: Tensor, length: int, window: slice | None) -> Tensor:
        seen.append((*given.shape[1:], length, window is not None))
        assert window in (None, slice(0, given.shape[1]))
        return engine._run(cache, given, length, window)

    cache = engine.open_cache(4, 700)
    steps = Steps(cache, step, recorder := Recorder())
    for count, slots, place in (
        (1, [0], 3),
        (1, [0], 255),
        (1, [0], 256),
        (1, [0, 1, 2], 10),
        (1, [0, 1, 2, 3], 600),
        (1, [0, 1, 2], 699),
        (1, [3], 3),
        (1, [2], 255),
        (1, [2, 0, 1], 3),
        (3, [0], 30),
        (4, [0], 40),
    ):
        hidden = steps.run(same(count, slots, place), place + 1)
        assert hidden.shape[:2] == (len(slots), count)
    expected = {
        (1, 1, 256, True),
        (1, 1, 512, True),
        (4, 1, 256, True),
        (4, 1, aligned(700), True),
        (1, 1, 256, False),
        (4, 1, 256, False),
        (1, 4, 256, True),
    }
    assert set(seen) == expected
    assert recorder.count == len(steps) == len(expected)


def test_long_runs_are_not_recorded(engine: TorchEngine) -> None:
    cache = engine.open_cache(3, 200)
    steps = Steps(cache, partial(engine._run, cache), recorder := Recorder())
    sequences = Sequences(engine, cache, [2, 0])
    for count, recorded in ((MOST_TOKENS, 1), (MOST_TOKENS + 1, 1)):
        runs = sequences.runs(24, [count, 1])
        expected = unrecorded(engine, cache, runs)
        close(run(steps, runs), expected, [count, 1])
        assert recorder.count == recorded


def test_old_recordings_are_dropped(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "MOST_RECORDINGS", 2)
    cache = engine.open_cache(1, 100)
    steps = Steps(cache, partial(engine._run, cache), recorder := Recorder())
    for count in (1, 2, 1, 4, 1):
        steps.run(same(count, [0], 9), 10)
        assert len(steps) <= 2
    assert recorder.count == 4  # the first was dropped and is recorded again


def test_the_engine_runs_recorded_steps(engine: TorchEngine) -> None:
    """As it does on a GPU, in the cache that was opened last."""
    cache = engine.open_cache(6, 300)
    sequences = Sequences(engine, cache, (3, 0, 5))
    runs = [replace(new, num_logits=2) for new in sequences.runs(24, [3, 2, 4])]
    expected = engine.step(cache, runs)
    engine._steps = Steps(cache, partial(engine._run, cache), recorder := Recorder())
    try:
        found = engine.step(cache, runs)
    finally:
        engine._steps = None
    assert recorder.count == 1
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_a_step_that_cannot_be_recorded_is_computed(
    engine: TorchEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Callable[[], Tensor]) -> Callable[[], Tensor]:
        raise RuntimeError("operation not permitted when stream is capturing")

    cache = engine.open_cache(3, 100)
    sequences = Sequences(engine, cache, (0, 1, 2))
    steps = Steps(cache, partial(engine._run, cache), refuse)
    for back in (24, 23):
        runs = sequences.runs(back, [1, 1, 1])
        expected = unrecorded(engine, cache, runs)
        close(run(steps, runs), expected, [1, 1, 1])
    assert [record.getMessage() for record in caplog.records] == [
        "a step could not be recorded; its kernels are launched one by one"
    ]


def test_running_out_of_memory_while_recording_is_raised(engine: TorchEngine) -> None:
    def refuse(_: Callable[[], Tensor]) -> Callable[[], Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    cache = engine.open_cache(2, 40)
    steps = Steps(cache, partial(engine._run, cache), refuse)
    with pytest.raises(torch.OutOfMemoryError):
        steps.run(same(1, [0], 0), 1)
    assert len(steps) == 0


@pytest.mark.parametrize("window", [slice(0, 4), None])
def test_a_step_reads_no_values_on_the_host(tmp_path: Path, window: slice | None) -> None:
    """A graph cannot record it. Hence a step must run on meta tensors, which have no values."""
    write_checkpoint(tmp_path / "checkpoint")
    engine = TorchEngine(tmp_path / "checkpoint", "cpu", threads=1)
    engine.open_cache(4, 100)
    meta = torch.device("meta")
    modules = engine._modules
    for module in (modules.layers, modules.norm):
        module.to(meta)
    engine._modules = replace(modules, embed_tokens=modules.embed_tokens.to(meta))
    first, second = engine._rope
    engine._rope = first.to(meta), second.to(meta)
    cache = TorchCache(engine.config.text, 4, 100, meta, torch.float32)
    given = torch.zeros(4, 4, 2, dtype=torch.int64, device=meta)
    hidden = engine._run(cache, given, 64, window)
    assert hidden.device == meta
    assert hidden.shape == (4, 2, engine.config.text.hidden_size)
    with pytest.raises((NotImplementedError, RuntimeError)):
        given.max().item()  # what the test would catch
