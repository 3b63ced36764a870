"""Nodes that run, and what is wrong with nodes that are nearly like them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as errors

from tests.native.nodes import run

Array = NDArray[Any]
ERRORS = (errors.InvalidArgument, errors.RuntimeException, errors.Fail)
OPTIONAL = {
    "QuantizeRows": ("gamma", "beta"),
    "ProductInt8": ("bias", "skip"),
    "ProductInt4": ("gamma", "skip", "prompt"),
    "ImageAttention": (),
    "TextAttention": ("prompt",),
}


@dataclass(frozen=True)
class Case:
    """A node that runs. `free`: dimensions that may have any size, as (input, axis)."""

    op: str
    inputs: dict[str, Array | None]
    attributes: dict[str, float]
    free: frozenset[tuple[str, int]] = frozenset()
    # Attributes, and indices in inputs, with values that must be refused.
    wrong: dict[str, tuple[float, ...]] = field(default_factory=dict)
    indices: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)


def zeros(*shape: int, dtype: Any = np.float32) -> Array:
    return np.zeros(shape, dtype)


ANYWHERE: dict[str, tuple[float, ...]] = {
    "norm": (-1, 3),
    "activation": (-1, 3),
    "panels": (-1, 2),
    "columns": (0, -32, 1 << 40),
    "huge_pages": (-1, 2),
    "num_heads": (-1, 1 << 40),
    "num_kv_heads": (-1, 1 << 40),
    "epsilon": (-1.0, float("nan")),
}


def quantize(panels: int) -> Case:
    shape = (3, 5, 32) if panels else (5, 70)
    return Case(
        "QuantizeRows",
        {"x": zeros(*shape), "gamma": zeros(70), "beta": zeros(70)},
        {"columns": 70, "norm": 2, "panels": panels},
        frozenset({("x", panels)}),
        {**ANYWHERE, "columns": (0, -32, 69, 97, 1 << 40), "panels": (1 - panels, 2)},
    )


def product8(panels: int, activation: int) -> Case:
    num_panels, columns = (3, 40) if activation == 2 else (2, 40)
    skip = (2, 5, 32) if panels else (5, 40)
    return Case(
        "ProductInt8",
        {
            "rows": zeros(1, 2, 16, 64, dtype=np.uint8),
            "row_scale": zeros(5),
            "weight": zeros(num_panels, 2, 2, 16, 64, dtype=np.int8),
            "scale": zeros(num_panels * 32),
            "sum": zeros(num_panels * 32, dtype=np.int32),
            "bias": zeros(num_panels * 32),
            "skip": zeros(*skip),
        },
        {"columns": columns, "panels": panels, "activation": activation},
        wrong={
            **ANYWHERE,
            "columns": (0, -1, 7, 100, 1 << 40),
            "activation": (-1, 3, 0 if activation == 2 else 2),
            "panels": (1 - panels, 2),
        },
    )


def product4(prompt: int, activation: int) -> Case:
    tiles = 6 if activation == 2 else 3
    return Case(
        "ProductInt4",
        {
            "x": zeros(5, 128),
            "weight": zeros(tiles, 16, 64, dtype=np.uint8),
            "scale": zeros(tiles, 2, 16, dtype=np.float16),
            "gamma": zeros(128),
            "skip": zeros(5, 40),
            "prompt": np.array(prompt, np.int32),
        },
        {"columns": 40, "activation": activation},
        frozenset({("scale", 1)}),
        wrong={
            **ANYWHERE,
            "columns": (0, -1, 7, 100, 1 << 40),
            "activation": (-1, 1, 3, 2 - activation),
            "panels": (1, 2),
        },
        indices={"prompt": ((-1,), (3,), (4,), (7,), (8,), (1 << 30,))},
    )


def image(panels: int) -> Case:
    shape = (3, 10, 32) if panels else (10, 72)
    return Case(
        "ImageAttention",
        {**{name: zeros(*shape) for name in "qkv"}, "cos": zeros(5, 12), "sin": zeros(5, 12)},
        {"columns": 72, "num_heads": 3, "panels": panels},
        wrong={
            **ANYWHERE,
            "columns": (0, 48, 71, 1 << 40),
            "num_heads": (-1, 0, 1, 2, 5, 72),
            "panels": (1 - panels, 2),
        },
    )


def text(panels: int, prompt: int) -> Case:
    wide, narrow = ((3, 4, 32), (2, 4, 32)) if panels else ((4, 72), (4, 36))
    cache = zeros(3, 3, 40, 12, dtype=np.float16)
    return Case(
        "TextAttention",
        {
            "q": zeros(*wide),
            "k": zeros(*narrow),
            "v": zeros(*narrow),
            "q_gamma": zeros(12),
            "k_gamma": zeros(12),
            "cos": zeros(9, 6),
            "sin": zeros(9, 6),
            "rows": np.array([0, 8, 3, 3]),
            "starts": np.array([0, 3, 4], np.int32),
            "lengths": np.array([40, 1], np.int32),
            "slots": np.array([2, 0], np.int32),
            "past_key": cache,
            "past_value": cache.copy(),
            "prompt": np.array(prompt, np.int32),
        },
        {"columns": 72, "num_heads": 6, "num_kv_heads": 3, "panels": panels},
        wrong={
            **ANYWHERE,
            "columns": (0, 36, 71, 1 << 40),
            "num_heads": (-1, 0, 3, 4, 5, 72),
            "num_kv_heads": (-1, 0, 1, 2, 4, 6),
            "panels": (1 - panels, 2),
        },
        indices={
            "rows": ((-1, 0, 0, 0), (0, 9, 0, 0), (0, 0, 0, 1 << 62)),
            "starts": ((1, 3, 4), (0, 3, 5), (0, 5, 4), (0, -1, 4), (0, 3, 3), (0, 1 << 30, 4)),
            "lengths": ((41, 1), (2, 1), (3, 0), (3, -1), (1 << 30, 1), (-(1 << 31), 1)),
            "slots": ((2, 2), (3, 0), (-1, 0), (2, 1 << 30)),
            "prompt": ((-1,), (3,), (4,), (7,), (8,)),
        },
    )


MADE: dict[str, Callable[[], Case]] = {
    "rows": lambda: quantize(0),
    "panels": lambda: quantize(1),
    "int8": lambda: product8(0, 1),
    "int8-panels": lambda: product8(1, 0),
    "int8-swiglu": lambda: product8(0, 2),
    "int8-swiglu-panels": lambda: product8(1, 2),
    "int4": lambda: product4(0, 0),
    "int4-swiglu": lambda: product4(0, 2),
    "int4-prompt": lambda: product4(1, 2),
    "image": lambda: image(0),
    "image-panels": lambda: image(1),
    "text": lambda: text(0, 0),
    "text-prompt": lambda: text(1, 1),
}


def shapes_near(shape: tuple[int, ...]) -> Iterator[tuple[int | None, tuple[int, ...]]]:
    """Shapes that differ in one axis, and that axis; or in the number of axes."""
    for axis, size in enumerate(shape):
        for other in sorted({0, 1, abs(size - 1), size + 1, 2 * size} - {size}):
            yield axis, (*shape[:axis], other, *shape[axis + 1 :])
    yield None, (*shape, 2)
    if shape:
        yield None, (*shape, 1, 1, 1)
        yield None, shape[1:] if shape[0] != 1 else ()


def with_input(case: Case, name: str, value: Array | None) -> Case:
    return replace(case, inputs={**case.inputs, name: value})


def wrong_cases(case: Case) -> Iterator[tuple[str, Case]]:
    """Everything that is wrong in one place, with a name."""
    for name, value in case.inputs.items():
        if value is None:
            continue
        for axis, shape in shapes_near(value.shape):
            if axis is not None and (name, axis) in case.free:
                continue
            changed = np.resize(value, shape) if value.size else np.zeros(shape, value.dtype)
            yield f"{name} {list(shape)}", with_input(case, name, changed)
    for name, values in case.wrong.items():
        for number in values:
            attributes = {**case.attributes, name: number}
            yield f"{name}={number}", replace(case, attributes=attributes)
    for name, tuples in case.indices.items():
        old = case.inputs[name]
        for numbers in tuples if old is not None else ():
            assert old is not None
            changed = np.resize(np.array(numbers, old.dtype), old.shape)
            yield f"{name}={numbers}", with_input(case, name, changed)


def refusal(library: Path, case: Case) -> str | None:
    """The error that a case ends in; None if it runs."""
    try:
        run(library, case.op, case.inputs, **case.attributes)
    except ERRORS as error:
        return str(error)
    return None
