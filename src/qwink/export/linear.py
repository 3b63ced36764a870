"""Linear layers: the only module that chooses the operator for a product.

ONNX Runtime's operators run everywhere. Ours (`qwink.native`) also compute the norm before a
product and the bias, activation and residual after it, in the same pass over memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qwink.export.graph import MICROSOFT, NATIVE, Graph
from qwink.export.pack import CHUNK, TILE, interleave, pack_int4, pack_int8, pad_outputs
from qwink.export.quantize import quantize_blocks, quantize_columns
from qwink.export.recipe import Scheme
from qwink.model.weights import Rows

Float = NDArray[np.float32]
Matrix = Float | Rows  # rows that are read when they are needed, for the largest matrices


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """RMSNorm, or LayerNorm where there is a `beta`."""

    gamma: Float
    epsilon: float
    beta: Float | None = None

    def weights(self, graph: Graph) -> list[str]:
        tensors = [self.gamma] if self.beta is None else [self.gamma, self.beta]
        return [graph.weight(tensor, "norm") for tensor in tensors]


def normalize(graph: Graph, x: str, norm: Norm) -> str:
    """Apply only the norm, over the last axis."""
    op = "SimplifiedLayerNormalization" if norm.beta is None else "LayerNormalization"
    return graph.node(op, [x, *norm.weights(graph)], epsilon=norm.epsilon, axis=-1)


class Activation:
    """A value [rows, K] that several linear layers read: normalised and quantised at most once.

    `panels`: the value lies as [K / 32, rows, 32], which only our operators read.
    """

    def __init__(
        self, graph: Graph, value: str, norm: Norm | None = None, *, panels: bool = False
    ) -> None:
        self.graph, self.raw, self.norm, self.panels = graph, value, norm, panels
        self._value: str | None = None
        self._quantized: tuple[str, str] | None = None

    @property
    def value(self) -> str:
        """float32 [rows, K], normalised."""
        if self._value is None:
            assert not self.panels, "ONNX Runtime's operators read rows"
            self._value = normalize(self.graph, self.raw, self.norm) if self.norm else self.raw
        return self._value

    def quantized(self) -> tuple[str, str]:
        """For ONNX Runtime: uint8 [rows, K] with zero point 128, and the rows' largest magnitudes
        [rows, 1]. A scale per row keeps an outlier token from coarsening its neighbours.
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

    def tiles(self, num_inputs: int) -> tuple[str, str]:
        """For our operators: the same values in tiles, and a scale per row [rows]."""
        if self._quantized is None:
            g, norm = self.graph, self.norm
            inputs = [self.raw, *(norm.weights(g) if norm else [])]
            outputs = [g.fresh("tiles"), g.fresh("scale")]
            attributes = native_attributes(g, num_inputs, norm=norm, panels=self.panels)
            g.nodes("QuantizeRows", inputs, outputs, domain=NATIVE, **attributes)
            self._quantized = outputs[0], outputs[1]
        return self._quantized


def linear(
    x: Activation,
    weight: Matrix,
    scheme: Scheme,
    stem: str,
    *,
    bias: Float | None = None,
    gelu: bool = False,
    skip: str | None = None,
    panels: bool = False,
) -> str:
    """f(x [rows, K] · weight [N, K]ᵀ + bias) + skip → [rows, N], or in panels.

    f is GELU in its tanh approximation, or nothing. `skip` lies as the result does.
    """
    g = x.graph
    operator = _operator(x, scheme, weight.shape[1])
    if operator == "int8":
        function: Function = "gelu" if gelu else ""
        return _int8(x, weight, weight.shape[0], stem, bias, function, skip, panels=panels)
    if operator == "int4":
        assert bias is None, "4-bit products end with a residual only"
        return _int4(x, weight, scheme, weight.shape[0], stem, "", skip)
    y = _product(x, weight, scheme, stem)
    if bias is not None:
        y = g.node("Add", [y, g.weight(bias, "bias")])
    if gelu:
        y = g.node("Gelu", [y], approximate="tanh")
    return y if skip is None else g.node("Add", [y, skip])


def gated(
    x: Activation, gate: Float, up: Float, scheme: Scheme, *, fused: bool, panels: bool = False
) -> str:
    """SwiGLU: silu(x · gateᵀ) ⊙ (x · upᵀ), both [N, K] → [rows, N], or in panels.

    `fused`: ONNX Runtime's operators compute both products as one.
    """
    g, num_outputs = x.graph, gate.shape[0]
    operator = _operator(x, scheme, gate.shape[1])
    if operator is not None:
        weight = interleave(gate, up, TILE)
        if operator == "int4":
            return _int4(x, weight, scheme, num_outputs, "gate_up", "swiglu", None)
        return _int8(x, weight, num_outputs, "gate_up", None, "swiglu", None, panels=panels)
    if fused:
        joined = _product(x, np.concatenate([gate, up]), scheme, "gate_up")
        sizes = g.constant([num_outputs, num_outputs], np.int64)
        a, b = g.nodes("Split", [joined, sizes], [g.fresh("gate"), g.fresh("up")], axis=-1)
    else:
        a, b = _product(x, gate, scheme, "gate"), _product(x, up, scheme, "up")
    return g.node("Mul", [g.node("QuickGelu", [a], domain=MICROSOFT, alpha=1.0), b])  # SiLU


def _product(x: Activation, weight: Matrix, scheme: Scheme, stem: str) -> str:
    """By ONNX Runtime's operators."""
    g = x.graph
    num_outputs, num_inputs = weight.shape
    if scheme.kind == "fp32":
        return g.node("Gemm", [x.value, g.weight(weight, stem)], transB=1)
    if scheme.kind == "w8a8":
        # Signed weights and unsigned activations: other pairings reach a portable kernel only.
        values, scales = quantize_columns(weight, g.target.int8_limit)
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


Function = Literal["", "gelu", "swiglu"]


def _operator(x: Activation, scheme: Scheme, num_inputs: int) -> Literal["int8", "int4"] | None:
    """Which of our operators computes a product; None: ONNX Runtime's.

    Ours store 8-bit weights with a scale per output. A matrix whose width is no multiple of the
    4-bit blocks gets 8 bits too: ONNX Runtime's 4-bit product gives one row other bits alone than
    beside others.
    """
    if not x.graph.native or scheme.kind == "fp32":
        return None
    if scheme.kind == "w8a8" or scheme.bits == 8 or x.panels:
        return "int8"
    return "int4" if fits_4_bits(scheme, num_inputs) else "int8"


def fits_4_bits(scheme: Scheme, num_inputs: int) -> bool:
    """Whether our 4-bit product takes a matrix of this width."""
    return num_inputs % max(scheme.block, CHUNK) == 0


def _int8(
    x: Activation,
    weight: Matrix,
    num_outputs: int,
    stem: str,
    bias: Float | None,
    function: Function,
    skip: str | None,
    *,
    panels: bool,
) -> str:
    g = x.graph
    values, scales, sums = pack_int8(weight)
    inputs = [
        *x.tiles(weight.shape[1]),
        g.weight(values, stem),
        g.weight(scales, f"{stem}_scale"),
        g.weight(sums, f"{stem}_sum"),
        g.weight(pad_outputs(bias), "bias") if bias is not None else "",
        skip or "",
    ]
    attributes = native_attributes(g, num_outputs, function=function, panels=panels)
    return g.node("ProductInt8", inputs, domain=NATIVE, **attributes)


def _int4(
    x: Activation,
    weight: Matrix,
    scheme: Scheme,
    num_outputs: int,
    stem: str,
    function: Function,
    skip: str | None,
) -> str:
    """The norm is taken again for each product: at one token it costs less than an operator."""
    g, norm = x.graph, x.norm
    assert norm is None or norm.beta is None, "4-bit products know RMSNorm only"
    values, scales = pack_int4(weight, scheme.block)
    inputs = [
        x.raw,
        g.weight(values, stem),
        g.weight(scales, f"{stem}_scale"),
        norm.weights(g)[0] if norm else "",
        skip or "",
        g.prompt,
    ]
    attributes = native_attributes(g, num_outputs, norm=norm, function=function)
    outputs = [g.fresh("ProductInt4"), g.fresh("scratch")]
    return g.nodes("ProductInt4", inputs, outputs, domain=NATIVE, **attributes)[0]


def native_attributes(
    graph: Graph,
    num_columns: int,
    *,
    norm: Norm | None = None,
    function: Function = "",
    panels: bool = False,
    num_heads: int = 0,
    num_kv_heads: int = 0,
) -> dict[str, Any]:
    """What each of our operators is told; the numbers are those of kernels.h."""
    return {
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "columns": num_columns,
        "huge_pages": int(graph.huge_pages),
        "norm": 0 if norm is None else 1 if norm.beta is None else 2,
        "activation": ("", "gelu", "swiglu").index(function),
        "panels": int(panels),
        "epsilon": norm.epsilon if norm else 0.0,
    }
