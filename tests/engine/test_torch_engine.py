"""The PyTorch engine on the CPU, against Transformers and against the `exact` ONNX recipe."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qwink.engine.base import Chunk, NewTokens
from qwink.engine.onnx import OnnxEngine
from qwink.engine.torch.cache import TorchCache, neighbours
from qwink.engine.torch.engine import TorchEngine
from qwink.engine.torch.quantize import quantize
from qwink.engine.torch.weights import weight_bytes
from qwink.errors import CheckpointError, GenerationError, OptionError
from qwink.export.build import export
from qwink.export.recipe import RECIPES
from qwink.runtime.models import find_folder
from qwink.settings import Settings
from qwink.types import Grid, Patches
from tests.checkpoints import write_checkpoint
from tests.parity import (
    TOLERANCE,
    Case,
    assert_parity,
    decode_token,
    encode_all,
    engine_logits,
    make_case,
    new_tokens,
    noise,
    reference_features,
    reference_logits,
    snr,
)

Pair = tuple[TorchEngine, Any]  # an engine, and its reference in Transformers
Parts = list[int | Grid]
SQUARE, WIDE, TALL, LARGE = Grid(1, 4, 4), Grid(1, 2, 12), Grid(1, 10, 2), Grid(1, 12, 8)


def open_engine(folder: Path, dtype: str = "auto") -> TorchEngine:
    """On one thread: the models of these tests are too small for more."""
    return TorchEngine(folder, "cpu", dtype, threads=1)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("engine") / "checkpoint"
    return folder, write_checkpoint(folder)


@pytest.fixture(scope="module")
def pair(checkpoint: tuple[Path, Any]) -> Pair:
    return open_engine(checkpoint[0]), checkpoint[1]


# Parity


@pytest.mark.parametrize("grids", [[SQUARE], [WIDE, TALL], [SQUARE, SQUARE, LARGE]], ids=str)
def test_vision_encoder(pair: Pair, grids: list[Grid]) -> None:
    engine, reference = pair
    rng = np.random.default_rng(1)
    images = [noise(engine.config, grid, f"{i}", rng) for i, grid in enumerate(grids)]
    for patches, encoded in zip(images, engine.encode(images), strict=True):
        embeds, deepstack = reference_features(reference, patches)
        assert encoded.grid == patches.grid
        assert encoded.key.startswith(patches.key)
        np.testing.assert_allclose(encoded.embeds, embeds, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(encoded.deepstack, deepstack, rtol=0, atol=TOLERANCE)
        assert not encoded.embeds.flags.writeable
        assert not encoded.deepstack.flags.writeable
    assert engine.encode([]) == []


def test_frames_of_a_video_do_not_attend_to_each_other(pair: Pair) -> None:
    engine, _ = pair
    rng = np.random.default_rng(2)
    frames = [noise(engine.config, SQUARE, "frame", rng) for _ in range(2)]
    pixels = np.concatenate([frame.pixels for frame in frames])
    video = engine.encode([Patches(pixels, replace(SQUARE, t=2), "video")])[0]
    alone = engine.encode(frames)
    np.testing.assert_allclose(video.embeds, np.concatenate([i.embeds for i in alone]), atol=1e-5)


@pytest.mark.parametrize(
    "parts",
    [[40], [1], [5, SQUARE, 9], [SQUARE, 3], [4, WIDE, 3, TALL, 2, LARGE, 8]],
    ids=str,
)
def test_prompts(pair: Pair, parts: Parts) -> None:
    engine, reference = pair
    case = make_case(engine, parts, seed=5)
    cuts = range(1, len(case.prompt), 7)  # the logits before each cut are compared
    assert_parity(engine_logits(engine, case, cuts), reference_logits(reference, case))


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float16"},
        {"dtype": "float32", "style": "transformers5"},
        {"tied": False, "shards": True},
        {"deepstack_layers": ()},
        {"deepstack_layers": (0, 1, 3), "text_layers": 3},  # the last text layer has a tap, too
        {"num_heads": 6, "num_kv_heads": 1, "vision_num_heads": 4, "vision_depth": 3},
        {"attention_bias": True, "num_kv_heads": 4},
    ],
    ids=str,
)
def test_other_shapes(tmp_path: Path, options: dict[str, Any]) -> None:
    reference = write_checkpoint(tmp_path / "checkpoint", **options)
    engine = open_engine(tmp_path / "checkpoint")
    case = make_case(engine, [4, LARGE, 6, SQUARE, 9], seed=6)
    found = engine_logits(engine, case, cuts=[9, 20], num_decoded=6)
    assert_parity(found, reference_logits(reference, case))


def test_the_exact_recipe_gives_the_same_logits(
    checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    engine = open_engine(checkpoint[0])
    exact = OnnxEngine(export(checkpoint[0], tmp_path / "exact", RECIPES["exact"]), threads=1)
    case = make_case(exact, [6, SQUARE, 10, TALL, 12], seed=9)
    theirs = engine_logits(exact, case, cuts=[20], num_decoded=8)
    case = make_case(
        engine, [6, SQUARE, 10, TALL, 12], seed=9
    )  # the same images, with the keys of this engine
    ours = engine_logits(engine, case, cuts=[20], num_decoded=8)
    assert ours.keys() == theirs.keys()
    for token, logits in ours.items():
        np.testing.assert_allclose(logits, theirs[token], rtol=0, atol=TOLERANCE)


def test_nano_as_it_ships(tmp_path: Path) -> None:
    from transformers import Qwen3VLForConditionalGeneration

    folder = find_folder("nano", Settings(tmp_path, tmp_path))
    reference = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    engine = open_engine(folder)
    case = make_case(engine, [6, LARGE, 20], seed=3)
    found = engine_logits(engine, case, cuts=[17], num_decoded=4)
    assert_parity(found, reference_logits(reference, case))
    exact = OnnxEngine(export(folder, tmp_path / "exact", RECIPES["exact"]), threads=1)
    theirs = engine_logits(exact, make_case(exact, [6, LARGE, 20], seed=3), [17], 4)
    for token, logits in found.items():
        np.testing.assert_allclose(logits, theirs[token], rtol=0, atol=TOLERANCE)


# Slots


def test_neighbours() -> None:
    assert neighbours([3]) == slice(3, 4)
    assert neighbours([2, 3, 4]) == slice(2, 5)
    assert neighbours([2, 4]) is neighbours([3, 2]) is neighbours([0, 1, 1]) is None


def prefilled(engine: TorchEngine, cache: TorchCache, slots: tuple[int, ...]) -> list[Case]:
    """Prompts of different lengths, all but their last seven tokens, which are text."""
    several: list[Parts] = [[30], [4, LARGE, 9], [3, SQUARE, 70]]
    cases = [make_case(engine, parts, seed=10) for parts in several]
    for slot, case in zip(slots, cases, strict=True):
        chunk = Chunk(slot, case.prompt, encode_all(engine, case), 0, len(case.prompt) - 7)
        engine.prefill(cache, [chunk])
    return cases


SLOTS = pytest.mark.parametrize("slots", [(1, 2, 3), (3, 0, 4), (2, 1, 0)], ids=str)


@SLOTS
def test_sequences_of_different_lengths_decode_together(pair: Pair, slots: tuple[int, ...]) -> None:
    engine, reference = pair
    cache = engine.open_cache(5, 128)
    cases = prefilled(engine, cache, slots)
    expected = [reference_logits(reference, case) for case in cases]
    for back in (7, 6, 5):
        tokens = [len(case.prompt) - back for case in cases]
        steps = zip(slots, cases, tokens, strict=True)
        found = engine.step(cache, [new_tokens(slot, case.prompt, t) for slot, case, t in steps])
        for row, token in enumerate(tokens):
            assert_parity({token: found[row]}, expected[row])


@SLOTS
def test_steps_of_several_tokens(pair: Pair, slots: tuple[int, ...]) -> None:
    """Some sequences run one token, others several; then all continue one by one."""
    engine, reference = pair
    cache = engine.open_cache(5, 128)
    cases = prefilled(engine, cache, slots)
    counts = [1, 4, 3]
    runs = [
        new_tokens(slot, case.prompt, len(case.prompt) - 7, count)
        for slot, case, count in zip(slots, cases, counts, strict=True)
    ]
    # Wrong tokens first, as rejected drafts are: the right ones overwrite them.
    engine.step(cache, [replace(run, ids=(run.ids[0], *[5] * (len(run.ids) - 1))) for run in runs])
    found = np.split(engine.step(cache, runs), np.cumsum(counts)[:-1])
    for run, case, rows in zip(runs, cases, found, strict=True):
        expected = reference_logits(reference, case)
        assert len(rows) == len(run.ids)
        assert_parity(dict(enumerate(rows, run.length)), expected)
        for token in range(run.length + len(run.ids), len(case.prompt)):
            logits = decode_token(engine, cache, run.slot, case.prompt, token)
            assert_parity({token: logits}, expected)


def test_logits_come_for_the_last_tokens_of_each_run(pair: Pair) -> None:
    engine, _ = pair
    cache = engine.open_cache(3, 128)
    cases = prefilled(engine, cache, (0, 1, 2))
    runs = [new_tokens(i, case.prompt, len(case.prompt) - 7, 4) for i, case in enumerate(cases)]
    every = engine.step(cache, runs)
    wanted = [2, 0, 1]
    fewer = [replace(run, num_logits=num) for run, num in zip(runs, wanted, strict=True)]
    some = engine.step(cache, fewer)
    np.testing.assert_allclose(some, every[[2, 3, 11]], rtol=0, atol=TOLERANCE)
    assert engine.step(cache, [replace(runs[0], num_logits=0)]).shape == (0, every.shape[1])


@SLOTS
def test_prompts_are_prefilled_together(pair: Pair, slots: tuple[int, ...]) -> None:
    engine, reference = pair
    several: list[Parts] = [[5, LARGE, 9], [50], [4, SQUARE, 3]]
    cases = [make_case(engine, parts, seed=11) for parts in several]
    cache = engine.open_cache(5, 64)
    engine.prefill(cache, [Chunk(slots[1], cases[1].prompt, {}, 0, 20)])  # one has begun before
    starts, images = [0, 20, 0], [encode_all(engine, case) for case in cases]
    for stops in ([10, 45, 7], [len(case.prompt) for case in cases]):
        chunks = [
            Chunk(slot, case.prompt, encoded, start, stop)
            for slot, case, encoded, start, stop in zip(
                slots, cases, images, starts, stops, strict=True
            )
        ]
        hidden = engine.prefill(cache, chunks)
        starts = stops
    logits = engine.logits(hidden)
    for row, case in enumerate(cases):
        last = len(case.prompt) - 1
        assert_parity({last: logits[row]}, reference_logits(reference, case))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_copied_and_truncated_slots_continue_alike(pair: Pair, dtype: str, tmp_path: Path) -> None:
    engine = pair[0] if dtype == "float32" else open_engine(write_folder(tmp_path), dtype)
    case = make_case(engine, [4, SQUARE, 12], seed=12)
    cache, last = engine.open_cache(3, 30), len(case.prompt) - 1
    engine.prefill(cache, [Chunk(0, case.prompt, encode_all(engine, case), 0, last)])
    wanted = decode_token(engine, cache, 0, case.prompt, last)
    cache.copy(0, 2, last)
    cache.truncate(0, 0)
    cache.truncate(1, 0)
    np.testing.assert_array_equal(decode_token(engine, cache, 2, case.prompt, last), wanted)
    cache.truncate(2, last - 5)
    again = engine.prefill(cache, [Chunk(2, case.prompt, {}, last - 5, last + 1)])
    np.testing.assert_allclose(engine.logits(again)[0], wanted, atol=0.2, rtol=0.05)


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_truncated_slot_returns_its_memory(pair: Pair) -> None:
    engine, _ = pair
    capacity = 1 << 16
    cache = engine.open_cache(3, capacity)
    slot_bytes = capacity * cache.bytes_per_token
    empty = resident_bytes()
    for slot in range(3):
        for index in range(engine.config.text.num_layers):
            for stored in cache.layer(index):
                stored[slot, :, :capacity] = 1 + slot
    full = resident_bytes()
    cache.truncate(1, capacity // 2)
    half = resident_bytes()
    cache.truncate(1, 0)
    none = resident_bytes()
    assert full - empty > 2.9 * slot_bytes
    assert 0.4 * slot_bytes < full - half < 0.6 * slot_bytes
    assert 0.9 * slot_bytes < full - none < 1.1 * slot_bytes
    for slot in (0, 2):  # the neighbours keep theirs
        for index in range(engine.config.text.num_layers):
            for stored in cache.layer(index):
                assert (stored[slot, :, :capacity] == 1 + slot).all()


def write_folder(tmp_path: Path, **options: Any) -> Path:
    write_checkpoint(tmp_path / "checkpoint", **options)
    return tmp_path / "checkpoint"


# Types of numbers


@pytest.mark.parametrize(("dtype", "least_db"), [("bfloat16", 25), ("float16", 40)])
def test_half_precision_stays_close(pair: Pair, checkpoint: Any, dtype: str, least_db: int) -> None:
    engine = open_engine(checkpoint[0], dtype)
    assert engine.about == {"engine": "torch", "device": "cpu", "dtype": dtype}
    assert engine.artifact_id != pair[0].artifact_id
    case = make_case(engine, [4, WIDE, 20], seed=13)
    found = engine_logits(engine, case, cuts=[9], num_decoded=5)
    expected = reference_logits(pair[1], case)
    for token, logits in found.items():
        assert logits.dtype == np.float32
        assert snr(logits, expected[token]) > least_db


def test_text_layers_in_int8(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    reference = write_checkpoint(folder)
    engine = TorchEngine(folder, "cpu", threads=1, quantize="int8")
    assert engine.about["quantize"] == "int8"
    assert engine.artifact_id != open_engine(folder).artifact_id
    case = make_case(engine, [4, WIDE, 20], seed=13)
    found = engine_logits(engine, case, cuts=[9], num_decoded=5)
    expected = reference_logits(reference, case)
    for token, logits in found.items():
        assert 25 < snr(logits, expected[token]) < 60  # close, but not equal


def test_int8_takes_less(pair: Pair) -> None:
    config = pair[0].config
    plain, quantized = (weight_bytes(config, torch.float16, q) for q in (False, True))
    matrices = [layer.parameters() for layer in pair[0]._modules.layers]
    halved = sum(p.numel() for layer in matrices for p in layer if p.ndim == 2)
    assert plain - quantized == halved


def test_quantizing_otherwise_is_refused(checkpoint: tuple[Path, Any]) -> None:
    with pytest.raises(OptionError, match="quantize is 'int2'; it must be int8"):
        TorchEngine(checkpoint[0], "cpu", quantize="int2")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_int8_layer_is_close_and_does_not_overflow(dtype: torch.dtype) -> None:
    source = torch.nn.Linear(4096, 64, dtype=torch.float64)
    x = torch.full((3, 4096), 30.0, dtype=torch.float64)
    expected = source(x).detach().numpy()
    layer = torch.nn.Sequential(source.to(dtype))
    quantize(layer)
    assert layer[0].weight.dtype == torch.int8
    assert snr(layer(x.to(dtype)).detach().numpy(), expected) > 30


@pytest.fixture
def overflowing(tmp_path: Path) -> TorchEngine:
    """In float16, whose range the embedding of token 7 exceeds."""
    engine = open_engine(write_folder(tmp_path, tied=False), "float16")
    engine._modules.embed_tokens[7] = 1e5
    return engine


def holds_numbers(engine: TorchEngine, cache: TorchCache) -> bool:
    """Whether all tokens in the cache are finite."""
    layers = [cache.layer(index) for index in range(engine.config.text.num_layers)]
    return all(bool(part[:, :, : cache.scratch].isfinite().all()) for kv in layers for part in kv)


def test_a_run_that_is_not_finite_leaves_others_as_they_are(overflowing: TorchEngine) -> None:
    engine = overflowing
    good = make_case(engine, [10], seed=14)
    cache = engine.open_cache(2, 16)
    for slot in (0, 1):
        engine.prefill(cache, [Chunk(slot, good.prompt, {}, 0, 7)])
    wanted = decode_token(engine, cache, 1, good.prompt, 7)
    untouched = decode_token(engine, cache, 0, good.prompt, 7)
    bad = NewTokens(0, (int(good.prompt.ids[7]), 7, 9), 7, 7)
    advice = "infinities or NaNs in float16; use --dtype float32"
    for runs in ([bad, new_tokens(1, good.prompt, 7)], [bad]):  # the batch, and the run alone
        with pytest.raises(GenerationError, match=advice):
            engine.step(cache, runs)
        # No NaN is left in the slot, where a masked token would still spoil others.
        assert holds_numbers(engine, cache)
    for slot, expected in ((0, untouched), (1, wanted)):  # even in the slot itself
        np.testing.assert_array_equal(decode_token(engine, cache, slot, good.prompt, 7), expected)
    engine.prefill(cache, [Chunk(0, good.prompt, {}, 0, 4)])
    assert np.isfinite(engine.prefill(cache, [Chunk(0, good.prompt, {}, 4, 9)])).all()


def test_a_chunk_that_is_not_finite_leaves_others_as_they_are(overflowing: TorchEngine) -> None:
    engine = overflowing
    good = make_case(engine, [10], seed=14)
    bad = replace(good.prompt, ids=np.full(10, 7))
    cache = engine.open_cache(3, 16)
    engine.prefill(cache, [Chunk(0, good.prompt, {}, 0, 5)])
    for chunks in (
        [Chunk(2, bad, {}, 0, 10), Chunk(0, good.prompt, {}, 5, 9)],
        [Chunk(2, bad, {}, 0, 10)],
    ):
        with pytest.raises(GenerationError, match="use --dtype float32"):
            engine.prefill(cache, chunks)
        assert holds_numbers(engine, cache)
    assert np.isfinite(decode_token(engine, cache, 0, good.prompt, 9)).all()
    assert np.isfinite(engine.prefill(cache, [Chunk(2, good.prompt, {}, 0, 4)])).all()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="truncated"):
        open_engine(folder)
