"""Every scheme of a linear layer, in graphs of one layer, against NumPy."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from qwink.export.graph import MICROSOFT, Graph, WeightFile
from qwink.export.linear import Activation, linear
from qwink.export.quantize import dequantize_blocks, quantize_blocks, quantize_columns
from qwink.export.recipe import FP32, W8A8, Scheme, nbits
from qwink.export.target import Target
from qwink.native import FULL_INT8, REDUCED_INT8, capabilities
from tests.parity import snr

Float = NDArray[np.float32]
ROWS, INPUTS, OUTPUTS = 12, 96, 40
LIMIT = capabilities().int8_limit


def weight_and_input(seed: int = 0) -> tuple[Float, Float]:
    rng = np.random.default_rng(seed)
    shapes = (OUTPUTS, INPUTS), (ROWS, INPUTS)
    weight, x = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return weight, x


def run(folder: Path, x: Float, weights: list[Float], scheme: Scheme) -> list[Float]:
    """x through several layers that share their input."""
    file = WeightFile(folder / "linear.bin")
    graph = Graph("linear", file, Target("onnxruntime", LIMIT))
    source = Activation(graph, graph.input("x", np.float32, ["R", x.shape[1]]))
    for index, weight in enumerate(weights):
        y = linear(source, weight, scheme, "w")
        graph.output(y, f"y{index}", np.float32, ["R", weight.shape[0]])
    return run_graph(graph, file, x)


def run_graph(graph: Graph, file: WeightFile, x: Float) -> list[Float]:
    path = file.path.with_suffix(".onnx")
    graph.save(path)
    file.close()
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    results: list[Float] = session.run(None, {"x": x})
    return results


def rounded_rows(x: Float) -> Float:
    """What 8 bits and a scale per row leave of x."""
    scale = np.abs(x).max(axis=1, keepdims=True) / 127
    values: Float = np.rint(x / scale) * scale
    return values


def test_fp32(tmp_path: Path) -> None:
    weight, x = weight_and_input()
    found = run(tmp_path, x, [weight], FP32)[0]
    np.testing.assert_allclose(found, x @ weight.T, atol=1e-5)


def test_w8a8_is_integer_arithmetic_on_both_sides(tmp_path: Path) -> None:
    weight, x = weight_and_input()
    values, scales = quantize_columns(weight, LIMIT)
    expected = rounded_rows(x) @ (values * scales)
    found = run(tmp_path, x, [weight], W8A8)[0]
    # A tie may be rounded the other way: one step of one input.
    np.testing.assert_allclose(found, expected, atol=0.05)
    assert snr(found, expected) > 60
    # Measured: 40.4 dB with weights up to 127, 37.5 with weights up to 64.
    assert snr(found, x @ weight.T) > (38 if LIMIT == FULL_INT8 else 35)


@pytest.mark.parametrize("limit", [REDUCED_INT8, FULL_INT8])
def test_weights_reach_the_limit_of_the_target(tmp_path: Path, limit: int) -> None:
    weight, x = weight_and_input()
    file = WeightFile(tmp_path / "limit.bin")
    graph = Graph("limit", file, Target("onnxruntime", limit))
    source = Activation(graph, graph.input("x", np.float32, ["R", INPUTS]))
    graph.output(linear(source, weight, W8A8, "w"), "y", np.float32, ["R", OUTPUTS])
    run_graph(graph, file, x)
    model = onnx.load(str(tmp_path / "limit.onnx"))
    stored = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    values = [each for each in stored.values() if each.dtype == np.int8]
    assert [(each.min(), each.max()) for each in values] == [(-limit, limit)]


@pytest.mark.parametrize("num_rows", [1, 7, 40])
def test_products_of_the_largest_values_do_not_saturate(tmp_path: Path, num_rows: int) -> None:
    """Pairs of products that add up to the most: rows of one sign, weights of one sign."""
    x = np.ones((num_rows, INPUTS), np.float32)
    x[::2] *= -1
    weight = np.ones((OUTPUTS, INPUTS), np.float32)
    weight[::2] *= -1
    np.testing.assert_array_equal(run(tmp_path, x, [weight], W8A8)[0], x @ weight.T)


@pytest.mark.parametrize("scheme", [nbits(8, 32), nbits(8, 128), nbits(4, 32), nbits(4, 128)])
def test_nbits(tmp_path: Path, scheme: Scheme) -> None:
    weight, x = weight_and_input()
    packed, scales = quantize_blocks(weight, scheme.bits, scheme.block)
    expected = x @ dequantize_blocks(packed, scales, scheme.bits, INPUTS).T
    found = run(tmp_path, x, [weight], scheme)[0]
    assert snr(found, expected) > 38  # the kernel rounds activations to 8 bits


@pytest.mark.parametrize("scheme", [FP32, W8A8, nbits(4, 32)])
def test_one_row_gives_what_it_gives_among_many(tmp_path: Path, scheme: Scheme) -> None:
    weight, x = weight_and_input()
    many = run(tmp_path, x, [weight], scheme)[0]
    one = run(tmp_path, x[3:4], [weight], scheme)[0]
    np.testing.assert_allclose(one, many[3:4], rtol=1e-4, atol=1e-4)


def test_input_is_quantised_once(tmp_path: Path) -> None:
    weight, x = weight_and_input()
    with closing(WeightFile(tmp_path / "shared.bin")) as file:
        graph = Graph("shared", file)
        source = Activation(graph, graph.input("x", np.float32, ["R", INPUTS]))
        first = source.quantized()
        linear(source, weight, W8A8, "a")
        assert source.quantized() == first
    both = run(tmp_path, x, [weight, weight[::-1].copy()], W8A8)
    np.testing.assert_array_equal(both[0], both[1][:, ::-1])


def test_extreme_rows(tmp_path: Path) -> None:
    """Zeros, one sign only, tiny and huge rows: each as accurate as if it were alone."""
    weight, x = weight_and_input()
    x[0] = 0
    x[1], x[2] = np.abs(x[1]), -np.abs(x[2])
    x[3] *= 1e-6
    x[4] *= 1e6
    x[5] = 0
    x[5, 7] = -3
    found = run(tmp_path, x, [weight], W8A8)[0]
    assert (found[0] == 0).all()
    for row in range(1, ROWS):
        assert snr(found[row], x[row] @ weight.T) > (34 if LIMIT == FULL_INT8 else 31)


def test_an_outlier_row_coarsens_itself_only(tmp_path: Path) -> None:
    weight, x = weight_and_input()
    x[5] *= 1000
    expected = np.delete(x @ weight.T, 5, axis=0)
    per_row = np.delete(run(tmp_path, x, [weight], W8A8)[0], 5, axis=0)

    # One scale for all rows, as ONNX Runtime's own dynamic quantisation has it.
    file = WeightFile(tmp_path / "per_tensor.bin")
    graph = Graph("per_tensor", file)
    value = graph.input("x", np.float32, ["R", INPUTS])
    values, scales = quantize_columns(weight)
    inputs = [value, graph.weight(values, "w"), graph.weight(scales, "s")]
    y = graph.node("DynamicQuantizeMatMul", inputs, domain=MICROSOFT)
    graph.output(y, "y", np.float32, ["R", OUTPUTS])
    per_tensor = np.delete(run_graph(graph, file, x)[0], 5, axis=0)

    assert snr(per_row, expected) > (38 if LIMIT == FULL_INT8 else 35)
    assert snr(per_tensor, expected) < 3
