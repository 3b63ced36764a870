"""Linear layers: the one place that decides which operator computes them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwink.export.graph import MICROSOFT, Graph
from qwink.export.quantize import quantize_blocks, quantize_columns
from qwink.export.recipe import Scheme
from qwink.model.weights import Rows

Float = NDArray[np.float32]
Matrix = Float | Rows  # rows that are read when they are needed, for the largest matrices


class Activation:
    """A value [rows, K] that several linear layers read; it is quantised at most once."""

    def __init__(self, graph: Graph, value: str) -> None:
        self.graph, self.value = graph, value
        self._quantized: tuple[str, str] | None = None

    def quantized(self) -> tuple[str, str]:
        """uint8 [rows, K] with zero point 128, and the rows' largest magnitudes [rows, 1].

        A scale per row keeps an outlier token from coarsening its neighbours.
        """
        if self._quantized is None:
            g = self.graph
            last = g.constant([-1], np.int64)
            # Two reductions read the value once each; Abs would write it once more.
            high = g.node("ReduceMax", [self.value, last], keepdims=0)
            low = g.node("ReduceMin", [self.value, last], keepdims=0)
            tiny = g.constant(1e-9, np.float32)
            peak = g.node("Max", [high, g.node("Neg", [low]), tiny])  # [rows]
            scale = g.node("Mul", [peak, g.constant(1 / 127, np.float32)])
            zero = g.node("Expand", [g.constant(128, np.uint8), g.node("Shape", [peak])])
            value = g.node("QuantizeLinear", [self.value, scale, zero], axis=0)
            self._quantized = value, g.node("Unsqueeze", [peak, last])
        return self._quantized


def linear(x: Activation, weight: Matrix, scheme: Scheme, stem: str) -> str:
    """x [rows, K] · weight [N, K]ᵀ → [rows, N], without bias."""
    g = x.graph
    num_outputs, num_inputs = weight.shape
    if scheme.kind == "fp32":
        return g.node("Gemm", [x.value, g.weight(weight, stem)], transB=1)
    if scheme.kind == "w8a8":
        # Signed weights and unsigned activations: other pairings reach a portable kernel only.
        values, scales = quantize_columns(weight)
        quantized, peak = x.quantized()
        inputs = [
            quantized,
            g.weight(values, stem),
            g.constant(1 / 127, np.float32),
            g.weight(scales, f"{stem}_scale"),
            g.constant(128, np.uint8),
        ]
        return g.node("Mul", [g.node("MatMulIntegerToFloat", inputs, domain=MICROSOFT), peak])
    packed, scales = quantize_blocks(weight, scheme.bits, scheme.block)
    return g.node(
        "MatMulNBits",
        [x.value, g.weight(packed, stem), g.weight(scales, f"{stem}_scale")],
        domain=MICROSOFT,
        K=num_inputs,
        N=num_outputs,
        bits=scheme.bits,
        block_size=scheme.block,
        accuracy_level=4,  # int8 activations; without it the kernel computes in fp32, 3-4x slower
    )
