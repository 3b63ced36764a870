"""Integer sums are exact on every set of kernels, also where instructions would saturate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.native.nodes import run

DEPTH, COLUMNS = 1024, 70  # sums of 1024 products of 127 times 127 are exact as float32
NUM_ROWS = (1, 3, 8, 21)
# Work is divided into 16 parts of panels: only many columns give a part two panels at once.
MANY_ROWS, MANY_COLUMNS = 131, 1100


def extremes(rng: np.random.Generator, limit: int, *shape: int) -> NDArray[np.int8]:
    """The largest values of either sign, in long runs of one sign and at random."""
    values = rng.choice(np.array([-limit, limit], np.int8), shape)
    values[:, : DEPTH // 2] = np.where(rng.random((shape[0], 1)) < 0.5, -limit, limit)
    mixed = rng.random(shape) < 0.2
    return np.where(mixed, rng.integers(-limit, limit + 1, shape), values).astype(np.int8)


def inputs(rng: np.random.Generator, num_rows: int) -> NDArray[np.float32]:
    """Whole numbers, whose scale is 1: each 32 of them hold 127."""
    x = extremes(rng, 127, num_rows, DEPTH).astype(np.float32)
    x[:, ::32] = 127
    return x


def panels_of(weight: NDArray[np.int8]) -> NDArray[np.int8]:
    """[columns, depth] to [panels, depth / 64, 2, 16, 64]."""
    padded = np.pad(weight, ((0, -weight.shape[0] % 32), (0, 0)))
    tiles = padded.reshape(-1, 2, 16, DEPTH // 64, 16, 4).transpose(0, 3, 1, 4, 2, 5)
    return np.ascontiguousarray(tiles.reshape(-1, DEPTH // 64, 2, 16, 64))


def tiles_of(weight: NDArray[np.int8]) -> NDArray[np.uint8]:
    """[columns, depth] of -8 to 7 to [tiles, depth / 8, 64]."""
    padded = np.pad(weight, ((0, -weight.shape[0] % 16), (0, 0))) + 8
    eights = padded.reshape(-1, 16, DEPTH // 8, 2, 4).transpose(0, 2, 3, 1, 4).astype(np.uint8)
    packed = (eights[:, :, 0] | eights[:, :, 1] << 4).astype(np.uint8)
    return np.ascontiguousarray(packed.reshape(-1, DEPTH // 8, 64))


def product8(library: Path, x: NDArray[np.float32], weight: NDArray[np.int8]) -> NDArray[Any]:
    """Sums of whole numbers; rows have 127 as their largest value, and so the scale 1."""
    rows, scale = run(library, "QuantizeRows", {"x": x, "gamma": None, "beta": None}, columns=DEPTH)
    np.testing.assert_array_equal(scale, np.ones(x.shape[0], np.float32))
    sums = np.pad(weight.sum(axis=1, dtype=np.int32), (0, -weight.shape[0] % 32))
    given: dict[str, Any] = {
        "rows": rows,
        "row_scale": scale,
        "weight": panels_of(weight),
        "scale": np.ones(sums.size, np.float32),
        "sum": sums,
    }
    (found,) = run(library, "ProductInt8", given, columns=weight.shape[0])
    return found


@pytest.mark.parametrize(
    ("num_rows", "columns"), [*((n, COLUMNS) for n in NUM_ROWS), (MANY_ROWS, MANY_COLUMNS)]
)
def test_int8(library: Path, num_rows: int, columns: int) -> None:
    rng = np.random.default_rng(num_rows)
    x, weight = inputs(rng, num_rows), extremes(rng, 127, columns, DEPTH)
    weight[0], x[0] = -127, np.where(x[0] < 0, -127, 127)
    expected = x.astype(np.float64) @ weight.astype(np.float64).T
    np.testing.assert_array_equal(product8(library, x, weight), expected.astype(np.float32))


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.sampled_from([-127, 127]), min_size=4, max_size=4),
    weights=st.lists(st.sampled_from([-128, 127]), min_size=4, max_size=4),
    seed=st.integers(0, 9),
)
@example(rows=[127, -127, 127, 127], weights=[-128, 127, 127, 127], seed=0)
@example(rows=[-127, 127, -127, -127], weights=[127, -128, -128, -128], seed=1)
def test_int8_of_quarters(library: Path, rows: list[int], weights: list[int], seed: int) -> None:
    """Quarters of one value each: sums of quarters, where a set makes them, are as large as can be.

    Row tiles and panels take turns, so that each lies in the first and the second half somewhere.
    """
    rng = np.random.default_rng(seed)
    half = np.arange(DEPTH) // 32 % 2  # of each chunk of the depth
    upper = rng.integers(0, 2, -(-MANY_ROWS // 16)).repeat(16)[:MANY_ROWS, None]
    right = (np.arange(MANY_COLUMNS) // 32 % 2)[:, None]
    x = np.array(rows, np.float32)[2 * upper + half]
    weight = np.array(weights, np.int8)[2 * right + half]
    expected = x.astype(np.float64) @ weight.astype(np.float64).T
    np.testing.assert_array_equal(product8(library, x, weight), expected.astype(np.float32))


@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_int4(library: Path, num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    x, weight = inputs(rng, num_rows), extremes(rng, 7, COLUMNS, DEPTH)
    weight[3] = -8
    packed = tiles_of(weight)
    given: dict[str, Any] = {
        "x": x,
        "weight": packed,
        "scale": np.ones((packed.shape[0], DEPTH // 64, 16), np.float16),
        "gamma": None,
        "skip": None,
    }
    expected = (x.astype(np.float64) @ weight.astype(np.float64).T).astype(np.float32)
    found, _ = run(
        library, "ProductInt4", {**given, "prompt": np.array(0, np.int32)}, columns=COLUMNS
    )
    np.testing.assert_array_equal(found, expected)
    found, _ = run(
        library, "ProductInt4", {**given, "prompt": np.array(1, np.int32)}, columns=COLUMNS
    )
    # As 8 bits, a step of 4 bits is 15 times the scale divided by 15, which is rounded.
    np.testing.assert_allclose(found, expected, rtol=1e-6)
