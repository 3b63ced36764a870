"""Text graphs: schemes that differ between the matrices of a layer."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from qwink import native
from qwink.export.graph import Graph, WeightFile
from qwink.export.linear import Activation
from qwink.export.recipe import W8A8, nbits
from qwink.export.target import Target
from qwink.export.text import joined
from qwink.native import LAYOUTS, Layout, capabilities
from tests.parity import snr

Float = NDArray[np.float32]
SCHEMES = [W8A8, nbits(8, 32)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kinds", list(product(range(2), repeat=3)), ids=str)
def test_joined_products_come_in_the_order_asked_for(
    tmp_path: Path, layout: Layout, kinds: tuple[int, ...]
) -> None:
    """Also if the first and the last matrix share a scheme and the one between has another."""
    if layout not in capabilities().layouts:
        pytest.skip("our kernels do not run here")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 128)).astype(np.float32)
    matrices: list[Float] = [rng.normal(size=(n, 128)).astype(np.float32) for n in (64, 32, 32)]
    file = WeightFile(tmp_path / "joined.bin")
    graph = Graph("joined", file, Target(layout, capabilities().int8_limit))
    source = Activation(graph, graph.input("x", np.float32, ["R", 128]))
    parts = joined(source, matrices, [SCHEMES[kind] for kind in kinds])
    for index, part in enumerate(parts):
        graph.output(part, f"y{index}", np.float32, ["R", matrices[index].shape[0]])
    graph.save(tmp_path / "joined.onnx")
    file.close()
    options = ort.SessionOptions()
    if graph.native:
        options.register_custom_ops_library(str(native.LIBRARY))
    path: Any = tmp_path / "joined.onnx"
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for found, matrix in zip(session.run(None, {"x": x}), matrices, strict=True):
        assert snr(found, x @ matrix.T) > 30
