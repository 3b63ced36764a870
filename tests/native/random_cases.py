"""Nodes with random shapes, attributes and values that fit together, and changes to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.native.cases import ANYWHERE, OPTIONAL, Array, Case, shapes_near, with_input

Random = np.random.Generator
# Around the sizes of tiles, panels and blocks.
ROWS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 50, 65)
HEADS = (2, 4, 6, 8, 12, 16, 30, 32, 34, 64, 72, 80, 128, 130, 254, 256)
LARGE = (-(1 << 63), -(1 << 31), -1, 0, 1, 31, 32, 33, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 62)
LARGE_PROBABILITY = 0.03  # of weights of 2 MB, which go to huge pages


def below(rng: Random, stop: int) -> int:
    return int(rng.integers(stop))


def pick(rng: Random, values: tuple[int, ...]) -> int:
    return values[below(rng, len(values))]


def floats(rng: Random, *shape: int, dtype: Any = np.float32) -> Array:
    """Ordinary numbers, zeros, numbers near the largest, or any bits: NaN, infinity, subnormals."""
    kind = below(rng, 6)
    if kind == 0:
        return np.zeros(shape, dtype)
    if kind == 1:
        width: Any = np.uint16 if dtype is np.float16 else np.uint32
        bits: NDArray[Any] = rng.integers(np.iinfo(width).max, size=shape, dtype=width)
        return bits.view(dtype)
    values = rng.normal(size=shape)
    if kind == 2:
        values *= float(np.finfo(dtype).max) / 4
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype)


def integers(rng: Random, kind: Any, *shape: int) -> Array:
    """Any values of an integer type, or its least or greatest only."""
    limits = np.iinfo(kind)
    if below(rng, 4) == 0:
        return np.full(shape, limits.min if below(rng, 2) else limits.max, kind)
    return rng.integers(limits.min, limits.max, size=shape, dtype=kind, endpoint=True)


def matrix(rng: Random, panels: int, num_rows: int, num_columns: int) -> Array:
    panelled = (-(-num_columns // 32), num_rows, 32)
    return floats(rng, *(panelled if panels else (num_rows, num_columns)))


def maybe(rng: Random, value: Array) -> Array | None:
    return value if below(rng, 2) else None


def quantize(rng: Random) -> Case:
    panels, num_rows, columns = below(rng, 2), pick(rng, ROWS), 1 + below(rng, 300)
    return Case(
        "QuantizeRows",
        {
            "x": matrix(rng, panels, num_rows, columns),
            "gamma": floats(rng, columns),
            "beta": floats(rng, columns),
        },
        {"columns": columns, "norm": below(rng, 3), "panels": panels, "epsilon": rng.random()},
    )


def product8(rng: Random) -> Case:
    large = rng.random() < LARGE_PROBABILITY
    panels, activation = below(rng, 2), below(rng, 3)
    num_rows, steps = pick(rng, ROWS), 256 if large else 1 + below(rng, 4)
    columns = 1 + below(rng, 250)
    num_panels = -(-columns // (16 if activation == 2 else 32))
    tiles = -(-num_rows // 16)
    width = num_panels * 32
    return Case(
        "ProductInt8",
        {
            "rows": integers(rng, np.uint8, tiles, steps, 16, 64),
            "row_scale": floats(rng, num_rows),
            "weight": integers(rng, np.int8, num_panels, steps, 2, 16, 64),
            "scale": floats(rng, width),
            "sum": integers(rng, np.int32, width),
            "bias": maybe(rng, floats(rng, width)),
            "skip": maybe(rng, matrix(rng, panels, num_rows, columns)),
        },
        {
            **{"columns": columns, "panels": panels, "activation": activation},
            "huge_pages": below(rng, 2),
        },
    )


def product4(rng: Random) -> Case:
    large = rng.random() < LARGE_PROBABILITY
    activation, num_rows = 2 * below(rng, 2), pick(rng, ROWS)
    num_blocks, block = 1 + below(rng, 4), 64 * (64 if large else 1 + below(rng, 3))
    depth, columns = num_blocks * block, 1 + below(rng, 1200 if large else 150)
    if below(rng, 2):
        num_blocks = depth // 32  # the smallest blocks
    tiles = -(-columns // 16) * (2 if activation == 2 else 1)
    prompt = np.array(pick(rng, (0, 0, 1, 2, 5, 6)), np.int32)
    return Case(
        "ProductInt4",
        {
            "x": floats(rng, num_rows, depth),
            "weight": integers(rng, np.uint8, tiles, depth // 8, 64),
            "scale": floats(rng, tiles, num_blocks, 16, dtype=np.float16),
            "gamma": maybe(rng, floats(rng, depth)),
            "skip": maybe(rng, floats(rng, num_rows, columns)),
            "prompt": maybe(rng, prompt),
        },
        {"columns": columns, "activation": activation, "huge_pages": below(rng, 2)},
    )


def image(rng: Random) -> Case:
    size, num_heads, panels = pick(rng, HEADS), 1 + below(rng, 3), below(rng, 2)
    num_tokens, num_images = 1 + below(rng, 70), 1 + below(rng, 3)
    num_rows = num_tokens * num_images
    columns = size * num_heads
    return Case(
        "ImageAttention",
        {
            **{name: matrix(rng, panels, num_rows, columns) for name in "qkv"},
            "cos": floats(rng, num_tokens, size // 2),
            "sin": floats(rng, num_tokens, size // 2),
        },
        {"columns": columns, "num_heads": num_heads, "panels": panels},
    )


def sequences(rng: Random, num_slots: int, capacity: int) -> dict[str, Array]:
    """Where each sequence starts and ends: each has a slot of its own and fits into it."""
    number = 1 + below(rng, num_slots)
    counts = [below(rng, min(capacity, pick(rng, (2, 9, 70))) + 1) for _ in range(number)]
    lengths = [count + below(rng, capacity - count + 1) for count in counts]
    return {
        "starts": np.cumsum([0, *counts]).astype(np.int32),
        "lengths": np.array(lengths, np.int32),
        "slots": rng.permutation(num_slots)[:number].astype(np.int32),
    }


def text(rng: Random) -> Case:
    size, panels = pick(rng, HEADS), below(rng, 2)
    num_kv_heads, group, num_slots = 1 + below(rng, 3), 1 + below(rng, 5), 1 + below(rng, 4)
    capacity, num_rotations = 1 + below(rng, 100), 1 + below(rng, 100)
    lists = sequences(rng, num_slots, capacity)
    num_rows, num_heads = int(lists["starts"][-1]), num_kv_heads * group
    cache = (num_slots, num_kv_heads, capacity, size)
    prompt = np.array(pick(rng, (0, 0, 1, 2, 5, 6)), np.int32)
    return Case(
        "TextAttention",
        {
            "q": matrix(rng, panels, num_rows, num_heads * size),
            "k": matrix(rng, panels, num_rows, num_kv_heads * size),
            "v": matrix(rng, panels, num_rows, num_kv_heads * size),
            "q_gamma": floats(rng, size),
            "k_gamma": floats(rng, size),
            "cos": floats(rng, num_rotations, size // 2),
            "sin": floats(rng, num_rotations, size // 2),
            "rows": rng.integers(num_rotations, size=num_rows),
            **lists,
            "past_key": floats(rng, *cache, dtype=np.float16),
            "past_value": floats(rng, *cache, dtype=np.float16),
            "prompt": maybe(rng, prompt),
        },
        {
            **{"columns": num_heads * size, "num_heads": num_heads, "panels": panels},
            "num_kv_heads": num_kv_heads,
        },
    )


def changed(rng: Random, case: Case) -> Case:
    """The case with another shape, attribute, index or without an input; it may still fit."""
    given = [name for name, value in case.inputs.items() if value is not None]
    name = given[below(rng, len(given))]
    value = case.inputs[name]
    assert value is not None
    kind = below(rng, 4)
    if kind == 0:
        shapes = [shape for _, shape in shapes_near(value.shape)]
        shape = shapes[below(rng, len(shapes))]
        other = np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
        return with_input(case, name, other)
    if kind == 1:
        attribute = list(ANYWHERE)[below(rng, len(ANYWHERE))]
        numbers = (*ANYWHERE[attribute], *(() if attribute == "epsilon" else LARGE))
        number = numbers[below(rng, len(numbers))]
        return replace(case, attributes={**case.attributes, attribute: number})
    lists = [n for n in given if n in ("rows", "starts", "lengths", "slots", "prompt", "sum")]
    lists = [n for n in lists if (v := case.inputs[n]) is not None and v.dtype.kind == "i"]
    if kind == 2 and lists:
        name = lists[below(rng, len(lists))]
        old = case.inputs[name]
        assert old is not None
        indices = old.copy()
        if indices.size:
            limits = np.iinfo(indices.dtype)
            number = min(max(pick(rng, LARGE), int(limits.min)), int(limits.max))
            indices.flat[below(rng, indices.size)] = number
        return with_input(case, name, indices)
    optional = OPTIONAL[case.op]
    return with_input(case, optional[below(rng, len(optional))], None) if optional else case


RANDOM: dict[str, Callable[[Random], Case]] = {
    "QuantizeRows": quantize,
    "ProductInt8": product8,
    "ProductInt4": product4,
    "ImageAttention": image,
    "TextAttention": text,
}
