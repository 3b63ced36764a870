"""The graph builder: shared constants, tensors in a file at page boundaries, graphs that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from qwink.export.graph import ALIGNMENT, INLINE_BYTES, Graph, WeightFile
from qwink.model.weights import Rows


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with closing(WeightFile(tmp_path / "g.bin")) as weights:
        yield Graph("g", weights)


def test_equal_constants_are_shared(graph: Graph) -> None:
    one = graph.constant([1], np.int64)
    assert graph.constant(np.array([1])) == one
    # The same bytes or value, but another shape or type.
    assert graph.constant(1, np.int64) != one
    assert graph.constant([1], np.float32) != one
    assert graph.constant(0.0, np.float32) != graph.constant(-0.0, np.float32)


def test_tensors_lie_at_page_boundaries(tmp_path: Path) -> None:
    file = WeightFile(tmp_path / "w.bin")
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in ((3,), (9000, 2), (5, 7))]
    arrays.append(arrays[1].T)  # not contiguous
    places = [file.append(array) for array in arrays]
    half = rng.normal(size=(5000, 3)).astype(np.float16)
    places.append(file.append(Rows(half)))
    file.close()
    content = (tmp_path / "w.bin").read_bytes()
    for array, (offset, length) in zip([*arrays, half.astype(np.float32)], places, strict=True):
        assert offset % ALIGNMENT == 0
        assert content[offset : offset + length] == array.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8])
def test_small_weights_are_inline_and_large_ones_outside(tmp_path: Path, dtype: type) -> None:
    weights = WeightFile(tmp_path / "g.bin")
    graph = Graph("g", weights)
    x = graph.input("x", dtype, ["N"])
    most = INLINE_BYTES // np.dtype(dtype).itemsize
    small: NDArray[Any] = np.arange(most).astype(dtype)
    large: NDArray[Any] = np.arange(most + 1).astype(dtype)
    whole = graph.node("Concat", [x, graph.weight(small, "s"), graph.weight(large, "l")], axis=0)
    graph.output(whole, "y", dtype, ["M"])
    graph.save(tmp_path / "g.onnx")
    weights.close()
    model = onnx.load(str(tmp_path / "g.onnx"), load_external_data=False)
    outside = [t.name for t in model.graph.initializer if t.data_location == t.EXTERNAL]
    assert len(outside) == 1
    assert outside[0].startswith("l_")
    session = ort.InferenceSession(tmp_path / "g.onnx", providers=["CPUExecutionProvider"])
    values: NDArray[Any] = np.array([7], dtype)
    expected = np.concatenate([values, small, large])
    np.testing.assert_array_equal(session.run(None, {"x": values})[0], expected)


def test_names_are_unique(graph: Graph) -> None:
    x = graph.input("x", np.float32, ["N"])
    weight = np.zeros(4, np.float32)
    names = [graph.fresh("a"), graph.fresh("a"), graph.weight(weight, "a"), graph.node("Neg", [x])]
    assert len(set(names)) == len(names)
