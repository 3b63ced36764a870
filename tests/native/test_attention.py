"""TextAttention over ragged sequences in slots: against NumPy, and bit by bit against itself."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from tests.native.nodes import from_panels, in_use, session, to_panels

Float = NDArray[np.float32]
HEADS, KV_HEADS = 4, 2
GROUP = HEADS // KV_HEADS
ANSWER, FIRST, CONTINUES, LAST = 0, 1, 2, 4
INPUTS: list[tuple[str, Any]] = [
    ("q", np.float32),
    ("k", np.float32),
    ("v", np.float32),
    ("q_gamma", np.float32),
    ("k_gamma", np.float32),
    ("cos", np.float32),
    ("sin", np.float32),
    ("rows", np.int64),
    ("starts", np.int32),
    ("lengths", np.int32),
    ("slots", np.int32),
    ("past_key", np.float16),
    ("past_value", np.float16),
    ("prompt", np.int32),
]


@dataclass(frozen=True)
class Tokens:
    """All tokens of one sequence, before norm and rotation."""

    q: Float  # [tokens, HEADS * size]
    k: Float  # [tokens, KV_HEADS * size]
    v: Float
    rows: NDArray[np.int64]  # of cos and sin

    def __getitem__(self, part: slice) -> Tokens:
        return Tokens(self.q[part], self.k[part], self.v[part], self.rows[part])


class Layer:
    """One operator with its cache, whose memory it changes in place."""

    def __init__(
        self, library: Path, *, size: int = 32, panels: bool = False, capacity: int = 640
    ) -> None:
        rng = np.random.default_rng(size)
        self.size, self.panels, self.rng = size, panels, rng
        self.q_gamma, self.k_gamma = (
            rng.normal(size=size).astype(np.float32) + 1 for _ in range(2)
        )
        angles = rng.uniform(-3, 3, (800, size // 2)).astype(np.float32)
        self.cos, self.sin = np.cos(angles), np.sin(angles)
        self.session = session(
            library,
            "TextAttention",
            INPUTS,
            columns=HEADS * size,
            panels=int(panels),
            num_heads=HEADS,
            num_kv_heads=KV_HEADS,
        )
        shape = (4, KV_HEADS, capacity, size)
        # NaN: memory that no token has been written to must not be read.
        self.keys, self.values = (
            ort.OrtValue.ortvalue_from_numpy(np.full(shape, np.nan, np.float16)) for _ in range(2)
        )

    def tokens(self, count: int) -> Tokens:
        q, k, v = (
            self.rng.normal(size=(count, heads * self.size)).astype(np.float32)
            for heads in (HEADS, KV_HEADS, KV_HEADS)
        )
        return Tokens(q, k, v, self.rng.integers(0, 800, count))

    def step(self, prompt: int, runs: list[tuple[int, int, Tokens]]) -> list[Float]:
        """`runs`: slot, tokens in it before, new tokens. Returns the rows of each."""
        lay = to_panels if self.panels else np.ascontiguousarray
        counts = [len(new.rows) for _, _, new in runs]
        feeds = {
            **{
                name: lay(np.concatenate([getattr(new, name) for _, _, new in runs]))
                for name in ("q", "k", "v")
            },
            "q_gamma": self.q_gamma,
            "k_gamma": self.k_gamma,
            "cos": self.cos,
            "sin": self.sin,
            "rows": np.concatenate([new.rows for _, _, new in runs]),
            "starts": np.cumsum([0, *counts]).astype(np.int32),
            "lengths": np.array([past + len(new.rows) for _, past, new in runs], np.int32),
            "slots": np.array([slot for slot, _, _ in runs], np.int32),
            "prompt": np.array(prompt, np.int32),
        }
        binding = self.session.io_binding()
        for name, value in feeds.items():
            binding.bind_cpu_input(name, value)
        binding.bind_ortvalue_input("past_key", self.keys)
        binding.bind_ortvalue_input("past_value", self.values)
        binding.bind_output("out0", "cpu")
        binding.bind_ortvalue_output("out1", self.keys)
        binding.bind_ortvalue_output("out2", self.values)
        binding.bind_output("out3", "cpu")
        self.session.run_with_iobinding(binding)
        found: Float = binding.get_outputs()[0].numpy()
        found = from_panels(found, HEADS * self.size) if self.panels else found
        return np.split(found, np.cumsum(counts)[:-1])

    def expected(self, all_tokens: Tokens) -> NDArray[np.float64]:
        """What each token gets, in double precision but for the cache's half precision."""
        count = len(all_tokens.rows)

        def heads(x: Float) -> NDArray[np.float64]:
            return x.astype(np.float64).reshape(count, -1, self.size).transpose(1, 0, 2)

        def turned(x: Float, gamma: Float) -> NDArray[np.float64]:
            y = heads(x)
            y = y / np.sqrt((y**2).mean(axis=-1, keepdims=True) + 1e-6) * gamma
            a, b = np.split(y, 2, axis=-1)
            cos, sin = (table[all_tokens.rows] for table in (self.cos, self.sin))
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

        def halves(x: NDArray[np.float64]) -> NDArray[np.float64]:
            return x.astype(np.float16).astype(np.float64).repeat(GROUP, axis=0)

        q, k = turned(all_tokens.q, self.q_gamma), halves(turned(all_tokens.k, self.k_gamma))
        v = halves(heads(all_tokens.v))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(self.size)
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True) @ v
        return out.transpose(1, 0, 2).reshape(count, -1)


def assert_close(found: Float, expected: NDArray[np.float64], tolerance: float) -> None:
    assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()


# AMX computes prompts in bfloat16 with 8 bits of mantissa; all else differs by roundings of the
# cache to half precision, which fall the other way for a few values.
TILES, EXACT = 0.02, 1e-3


@pytest.mark.parametrize(("size", "panels"), [(32, False), (32, True), (24, True), (128, False)])
def test_ragged_prompts_and_answers(library: Path, size: int, *, panels: bool) -> None:
    """Prompts of unequal length in any slots, then steps of unequal length."""
    layer = Layer(library, size=size, panels=panels)
    sequences = {3: layer.tokens(345), 0: layer.tokens(40), 1: layer.tokens(5)}
    answers = {3: 1, 0: 4, 1: 2}
    expected = {slot: layer.expected(each) for slot, each in sequences.items()}
    cuts = {slot: len(each.rows) - answers[slot] for slot, each in sequences.items()}
    prompts = [(slot, 0, each[: cuts[slot]]) for slot, each in sequences.items()]
    for found, slot in zip(layer.step(FIRST, prompts), sequences, strict=True):
        assert_close(found, expected[slot][: cuts[slot]], TILES)
    steps = [(slot, cuts[slot], each[cuts[slot] :]) for slot, each in sequences.items()]
    for found, slot in zip(layer.step(ANSWER, steps), sequences, strict=True):
        assert_close(found, expected[slot][cuts[slot] :], EXACT)


def test_a_sequence_without_new_tokens(library: Path) -> None:
    layer = Layer(library)
    one, two = layer.tokens(7), layer.tokens(3)
    layer.step(FIRST, [(1, 0, one)])
    for prompt in (ANSWER, FIRST):
        found = layer.step(prompt, [(1, 7, one[:0]), (2, 0, two)])
        assert_close(found[1], layer.expected(two), TILES)


def test_several_new_tokens_are_computed_as_if_each_came_alone(library: Path) -> None:
    layer = Layer(library)
    one, two = layer.tokens(300), layer.tokens(9)
    layer.step(FIRST, [(0, 0, one[:290]), (2, 0, two[:4])])
    together = layer.step(ANSWER, [(2, 4, two[4:]), (0, 290, one[290:])])
    for t in range(290, 300):
        alone = layer.step(ANSWER, [(0, t, one[t : t + 1])])[0]
        np.testing.assert_array_equal(alone[0], together[1][t - 290])
    for t in range(4, 9):
        alone = layer.step(ANSWER, [(2, t, two[t : t + 1])])[0]
        np.testing.assert_array_equal(alone[0], together[0][t - 4])


@pytest.mark.parametrize("size", [32, 72])
@pytest.mark.parametrize("cuts", [[1], [31, 40], [256], [299], [64, 257, 290]])
def test_a_prompt_does_not_show_its_cuts(library: Path, size: int, cuts: list[int]) -> None:
    layer = Layer(library, size=size)
    tokens, other = layer.tokens(300), layer.tokens(50)
    whole = layer.step(FIRST | LAST, [(0, 0, tokens)])[0]
    edges = [0, *cuts, 300]
    for again in (FIRST, CONTINUES):  # all keys packed again for each chunk, or the new ones only
        parts = [
            layer.step(again if start else FIRST, [(1, start, tokens[start:stop])])[0]
            for start, stop in pairwise(edges)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    beside = layer.step(FIRST, [(3, 0, other), (2, 0, tokens[: cuts[0]])])[1]
    np.testing.assert_array_equal(beside, whole[: cuts[0]])


def test_what_is_packed_belongs_to_the_prompt_under_way(library: Path) -> None:
    """A chunk gives the same bits whatever came between it and the chunk before."""
    layer = Layer(library)
    tokens, other = layer.tokens(120), layer.tokens(80)
    expected = layer.step(FIRST | LAST, [(0, 0, tokens)])[0][70:]

    def chunk(prompt: int) -> None:
        found = layer.step(prompt, [(0, 70, tokens[70:])])[0]
        np.testing.assert_array_equal(found, expected)

    def start() -> None:
        layer.step(FIRST, [(0, 0, tokens[:70])])

    start()
    layer.step(FIRST, [(1, 0, other)])  # another slot's prompt
    chunk(CONTINUES)
    start()
    layer.step(ANSWER, [(1, 80, layer.tokens(1))])  # an answer's step
    chunk(CONTINUES)
    chunk(CONTINUES | LAST)  # goes on from 70 again, where the run before ended at 120
    layer.step(FIRST, [(0, 0, other)])
    start()
    chunk(CONTINUES | LAST)
    layer.step(FIRST, [(2, 0, tokens[:70])])
    layer.step(FIRST, [(0, 0, other[:70])])
    for memory in (layer.keys, layer.values):  # the slot is changed from outside
        changed = memory.numpy().copy()
        changed[0] = changed[2]
        memory.update_inplace(changed)
    chunk(FIRST)


def test_a_continuation_packs_its_new_tokens_only(library: Path) -> None:
    """Changes of the cache that the caller does not announce do not reach tiles made before."""
    layer = Layer(library)
    tokens = layer.tokens(120)
    expected = layer.step(FIRST | LAST, [(0, 0, tokens)])[0][70:]

    def changed(prompt: int) -> Float:
        layer.step(FIRST, [(0, 0, tokens[:70])])
        for memory in (layer.keys, layer.values):
            values = memory.numpy().copy()
            values[0, :, :64] = 1  # whole tiles
            memory.update_inplace(values)
        return layer.step(prompt, [(0, 70, tokens[70:])])[0]

    packs = in_use(library) == "amx"
    assert np.array_equal(changed(CONTINUES), expected) == packs
    assert not np.array_equal(changed(FIRST), expected)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", ["k", "v"])
def test_a_token_that_is_not_finite_does_not_reach_those_before_it(
    library: Path, bad: float, where: str
) -> None:
    layer = Layer(library)
    clean = layer.tokens(70)
    spoiled = Tokens(clean.q, clean.k.copy(), clean.v.copy(), clean.rows)
    getattr(spoiled, where)[37] = bad
    for prompt in (FIRST, ANSWER):
        expected, found = (layer.step(prompt, [(0, 0, tokens)])[0] for tokens in (clean, spoiled))
        np.testing.assert_array_equal(found[:37], expected[:37])
        assert not np.isfinite(found[37:]).any()
    # And in chunks, where the tiles are packed by and by.
    layer.step(FIRST, [(1, 0, spoiled[:30])])
    parts = [layer.step(CONTINUES, [(1, at, spoiled[at : at + 20])])[0] for at in (30, 50)]
    assert np.isfinite(parts[0][:7]).all()
    assert not np.isfinite(parts[0][7:]).any()
    assert not np.isfinite(parts[1]).any()


def test_keys_far_below_the_largest_weigh_nothing(library: Path) -> None:
    """Their values may be huge: a weight of 2^-100 would show."""
    layer = Layer(library, size=32)
    layer.q_gamma[:], layer.k_gamma[:] = 30, 30
    layer.cos[:], layer.sin[:] = 1, 0
    tokens = layer.tokens(2)
    tokens.q[:], tokens.k[:] = 1, 1
    tokens.k[0] = -1
    tokens.v[0], tokens.v[1] = 60000, 1e-7
    for prompt in (FIRST, ANSWER):
        found = layer.step(prompt, [(0, 0, tokens)])[0]
        np.testing.assert_array_equal(found[1], np.full(HEADS * 32, np.float16(1e-7), np.float32))


def test_a_cache_that_is_not_bound_is_copied(library: Path) -> None:
    layer = Layer(library)
    tokens = layer.tokens(33)
    expected = layer.step(FIRST, [(2, 0, tokens)])[0]
    keys, values = layer.keys.numpy(), layer.values.numpy()
    feeds = {
        "q": tokens.q,
        "k": tokens.k,
        "v": tokens.v,
        "q_gamma": layer.q_gamma,
        "k_gamma": layer.k_gamma,
        "cos": layer.cos,
        "sin": layer.sin,
        "rows": tokens.rows,
        "starts": np.array([0, 33], np.int32),
        "lengths": np.array([33], np.int32),
        "slots": np.array([1], np.int32),
        "past_key": keys,
        "past_value": values,
        "prompt": np.array(FIRST, np.int32),
    }
    found, present_keys, present_values, _ = layer.session.run(None, feeds)
    np.testing.assert_array_equal(found, expected)
    for present, past in ((present_keys, keys), (present_values, values)):
        np.testing.assert_array_equal(present[2], past[2])
        np.testing.assert_array_equal(present[1, :, :33], past[2, :, :33])
