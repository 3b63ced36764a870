"""Integer sums are exact on every set of kernels, also where instructions would saturate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native.nodes import run

DEPTH, COLUMNS = 1024, 70  # sums of 1024 products of 127 times 127 are exact as float32
NUM_ROWS = (1, 3, 8, 21)


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


@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_int8(library: Path, num_rows: int) -> None:
    rng = np.random.default_rng(num_rows)
    x, weight = inputs(rng, num_rows), extremes(rng, 127, COLUMNS, DEPTH)
    weight[0], x[0] = -127, np.where(x[0] < 0, -127, 127)
    rows, scale = run(library, "QuantizeRows", {"x": x, "gamma": None, "beta": None}, columns=DEPTH)
    np.testing.assert_array_equal(scale, np.ones(num_rows, np.float32))
    packed = panels_of(weight)
    sums = np.pad(weight.sum(axis=1, dtype=np.int32), (0, -COLUMNS % 32))
    given: dict[str, Any] = {
        "rows": rows,
        "row_scale": scale,
        "weight": packed,
        "scale": np.ones(sums.size, np.float32),
        "sum": sums,
    }
    (found,) = run(library, "ProductInt8", given, columns=COLUMNS)
    expected = x.astype(np.int64) @ weight.astype(np.int64).T
    np.testing.assert_array_equal(found, expected.astype(np.float32))


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
    expected = (x.astype(np.int64) @ weight.astype(np.int64).T).astype(np.float32)
    found, _ = run(
        library, "ProductInt4", {**given, "prompt": np.array(0, np.int32)}, columns=COLUMNS
    )
    np.testing.assert_array_equal(found, expected)
    found, _ = run(
        library, "ProductInt4", {**given, "prompt": np.array(1, np.int32)}, columns=COLUMNS
    )
    # As 8 bits, a step of 4 bits is 15 times the scale divided by 15, which is rounded.
    np.testing.assert_allclose(found, expected, rtol=1e-6)
