"""Our own operators, in graphs of one layer, against the same arithmetic in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from qwink import native
from qwink.export.graph import NATIVE, Graph, WeightFile
from qwink.export.linear import Activation, Norm, gated, linear, native_attributes
from qwink.export.quantize import dequantize_blocks, quantize_blocks, quantize_columns
from qwink.export.recipe import W8A8, nbits
from qwink.export.stream import Stream
from qwink.export.target import Target
from qwink.model.rope import vision_rope
from qwink.native import NATIVE_LAYOUT
from qwink.types import Grid
from tests.native.nodes import from_panels, to_panels

Float = NDArray[np.float32]
Build = Callable[[Graph], str]

pytestmark = pytest.mark.usefixtures("library")
RNG = np.random.default_rng(0)
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """The numbers of a test do not depend on the tests before it: some fall next to a tie."""
    RNG.bit_generator.state = START


def normal(*shape: int) -> Float:
    return RNG.normal(size=shape).astype(np.float32)


def load(folder: Path, build: Build, **inputs: Any) -> ort.InferenceSession:
    """A small graph. `build` finds its inputs by name."""
    file = WeightFile(folder / "graph.bin")
    graph = Graph("graph", file, Target(NATIVE_LAYOUT))
    for name, value in inputs.items():
        graph.input(name, value.dtype, [f"{name}_{axis}" for axis in range(value.ndim)])
    graph.output(build(graph), "y", np.float32, [])
    path = folder / "graph.onnx"
    graph.save(path)
    file.close()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.register_custom_ops_library(str(native.LIBRARY))
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(folder: Path, build: Build, **inputs: Any) -> Float:
    result: Float = load(folder, build, **inputs).run(["y"], inputs)[0]
    return result


def rounded(x: NDArray[Any]) -> NDArray[np.float64]:
    """What 8 bits and a scale per row leave of x."""
    scale = np.abs(x).max(axis=1, keepdims=True).clip(1e-9) / 127
    values: NDArray[np.float64] = np.rint(x / scale) * scale
    return values


def normalized(x: Float, norm: Norm) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    if norm.beta is not None:
        wide = wide - wide.mean(axis=1, keepdims=True)
    wide /= np.sqrt((wide**2).mean(axis=1, keepdims=True) + norm.epsilon)
    shifted: NDArray[np.float64] = wide * norm.gamma + (0 if norm.beta is None else norm.beta)
    return shifted


def assert_close(found: Float, expected: NDArray[Any]) -> None:
    """All but a few to 1e-5: a tie may be rounded the other way, by one step of one input."""
    error = np.abs(found - expected) / np.abs(expected).max()
    assert found.shape == expected.shape
    assert np.quantile(error, 0.97) < 1e-5
    assert error.max() < 1e-2


@pytest.mark.parametrize("panels", [False, True])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 16, 17, 47])
def test_int8(tmp_path: Path, num_rows: int, *, panels: bool) -> None:
    """Sizes that fill no panel, tile or chunk; norm, bias, GELU and residual on the way."""
    x, weight, bias = normal(num_rows, 200), normal(100, 200), normal(100)
    skip = normal(num_rows, 100)
    norm = Norm(normal(200), 1e-6, normal(200))

    def build(g: Graph) -> str:
        source = Activation(g, "x", norm, panels=panels)
        return linear(source, weight, W8A8, "w", bias=bias, gelu=True, skip="skip", panels=panels)

    lay = to_panels if panels else np.asarray
    found = run(tmp_path, build, x=lay(x), skip=lay(skip))
    values, scales = quantize_columns(weight)
    y = rounded(normalized(x, norm)) @ (values * scales.astype(np.float64)) + bias
    y = y * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3))) + skip
    assert_close(from_panels(found, 100) if panels else found, y)


@pytest.mark.parametrize("num_rows", [1, 40])
def test_gated_int8(tmp_path: Path, num_rows: int) -> None:
    x, gate, up = normal(num_rows, 64), normal(72, 64), normal(72, 64)
    norm = Norm(normal(64), 1e-6)
    found = run(
        tmp_path,
        lambda g: gated(Activation(g, "x", norm), gate, up, W8A8, fused=False),
        x=x,
    )
    source = rounded(normalized(x, norm))
    a, b = (source @ rounded(matrix).T for matrix in (gate, up))
    assert_close(found, a / (1 + np.exp(-a)) * b)


def kept(weight: Float, block: int) -> NDArray[np.float64]:
    """What 4-bit blocks with scales in half precision leave of a weight."""
    packed, scales = quantize_blocks(weight, 4, block)
    halves = scales.astype(np.float16).astype(np.float32)
    return dequantize_blocks(packed, halves, 4, weight.shape[1]).astype(np.float64)


@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 7, 8, 13, 40])
def test_int4(tmp_path: Path, block: int, num_rows: int) -> None:
    x, weight, skip = normal(num_rows, 256), normal(37, 256), normal(num_rows, 37)
    norm = Norm(normal(256), 1e-6)
    scheme = nbits(4, block)
    found = run(
        tmp_path,
        lambda g: linear(Activation(g, "x", norm), weight, scheme, "w", skip="skip"),
        x=x,
        skip=skip,
    )
    wide = normalized(x, norm).reshape(-1, 32)  # a scale for each 32 values
    source = rounded(wide).reshape(num_rows, 256)
    assert_close(found, source @ kept(weight, block).T + skip)


def test_gated_int4(tmp_path: Path) -> None:
    x, gate, up = normal(3, 128), normal(20, 128), normal(20, 128)
    scheme = nbits(4, 32)
    found = run(tmp_path, lambda g: gated(Activation(g, "x"), gate, up, scheme, fused=True), x=x)
    source = rounded(x.reshape(-1, 32)).reshape(3, 128)
    a, b = (source @ kept(matrix, 32).T for matrix in (gate, up))
    assert_close(found, a / (1 + np.exp(-a)) * b)


def rescaled(weight: Float, block: int) -> NDArray[np.float64]:
    """The same, rounded to an int8 scale per output: a fifteenth of its coarsest block's."""
    exact = kept(weight, block)
    scales = quantize_blocks(weight, 4, block)[1].astype(np.float16).astype(np.float64)
    scale = np.abs(scales).max(axis=1, keepdims=True) / 15
    share = np.rint(scales / scale * 2048) / 2048  # as 16-bit integers
    steps = np.rint(exact / scales.repeat(block, axis=1))
    values: NDArray[np.float64] = np.floor(steps * share.repeat(block, axis=1) + 0.5) * scale
    return values


@pytest.mark.parametrize("block", [32, 128])
@pytest.mark.parametrize("num_rows", [1, 45])
def test_int4_for_prompts(tmp_path: Path, block: int, num_rows: int) -> None:
    """Unpacked to 8 bits; with plain AVX2 as in answers, which is faster there."""
    unpacked = native.capabilities().kernels != "avx2"
    x, skip = normal(num_rows, 256), normal(num_rows, 40)
    gate, up = normal(40, 256), normal(40, 256)
    gate[:, 64:128] *= 0.1  # blocks of unequal scales
    norm = Norm(normal(256), 1e-6)
    scheme = nbits(4, block)
    source = normalized(x, norm)
    source = rounded(source) if unpacked else rounded(source.reshape(-1, 32)).reshape(num_rows, 256)
    prompt = np.array(1, np.int32)

    def product(g: Graph) -> str:
        g.prompt = "prompt"
        return linear(Activation(g, "x", norm), gate, scheme, "w", skip="skip")

    def swiglu(g: Graph) -> str:
        g.prompt = "prompt"
        return gated(Activation(g, "x", norm), gate, up, scheme, fused=True)

    weights = rescaled if unpacked else kept
    a, b = (source @ weights(matrix, block).T for matrix in (gate, up))
    assert_close(run(tmp_path, product, x=x, skip=skip, prompt=prompt), a + skip)
    found = run(tmp_path, swiglu, x=x, prompt=prompt)
    assert_close(found, a / (1 + np.exp(-a)) * b)


@pytest.mark.parametrize("scheme", [W8A8, nbits(4, 32)], ids=["int8", "int4"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_says_so(tmp_path: Path, scheme: Any, bad: float) -> None:
    """And leaves its neighbours alone."""
    x, weight = normal(6, 128), normal(32, 128)
    spoiled = x.copy()
    spoiled[2, 77] = bad

    def build(g: Graph) -> str:
        return linear(Activation(g, "x"), weight, scheme, "w")

    found, clean = (run(tmp_path, build, x=value) for value in (spoiled, x))
    assert not np.isfinite(found[2]).any()
    np.testing.assert_array_equal(np.delete(found, 2, 0), np.delete(clean, 2, 0))


def test_a_stream_in_panels_reads_as_rows(tmp_path: Path) -> None:
    x, more, weight = normal(9, 64), normal(9, 64), normal(64, 64)

    def build(g: Graph) -> str:
        stream = Stream(g, "x", 64, panels=True)
        assert stream.panels
        stream.add("more")
        stream.add_product(Activation(g, "x"), weight, W8A8, "w")
        stream.select("rows")
        return stream.rows()

    rows = np.array([8, 0, 3], np.int64)
    found = run(tmp_path, build, x=x, more=more, rows=rows)
    assert_close(found, (x + more + rounded(x) @ rounded(weight).T)[rows])


@pytest.mark.parametrize(("num_heads", "size"), [(2, 32), (1, 64), (3, 24), (2, 72)])
@pytest.mark.parametrize("grid", [Grid(1, 2, 2), Grid(1, 6, 4), Grid(2, 10, 6), Grid(1, 30, 22)])
def test_image_attention(tmp_path: Path, num_heads: int, size: int, grid: Grid) -> None:
    """Several images of a grid, up to more than one chunk of 512 keys; bfloat16 inside."""
    tokens = grid.h * grid.w
    columns, rows = num_heads * size, grid.t * tokens
    cos, sin = vision_rope(Grid(1, grid.h, grid.w), size, 10000.0, 2)
    q, k, v = (normal(rows, columns) for _ in range(3))

    def build(g: Graph) -> str:
        attributes = native_attributes(g, columns, panels=True, num_heads=num_heads)
        outputs = [g.fresh("y"), g.fresh("scratch")]
        inputs = ["q", "k", "v", "cos", "sin"]
        return g.nodes("ImageAttention", inputs, outputs, domain=NATIVE, **attributes)[0]

    lay = {name: to_panels(value) for name, value in (("q", q), ("k", k), ("v", v))}
    found = from_panels(run(tmp_path, build, **lay, cos=cos, sin=sin), columns)
    heads = (grid.t, tokens, num_heads, size)
    q, k, v = (value.reshape(heads).transpose(0, 2, 1, 3) for value in (q, k, v))
    expected = attention(rotated(q, cos, sin), rotated(k, cos, sin), v)
    expected = expected.transpose(0, 2, 1, 3).reshape(rows, columns)
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()  # 8 bits of mantissa


def rotated(x: NDArray[Any], cos: Float, sin: Float) -> NDArray[Any]:
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """Softmax attention over the last two axes."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: NDArray[Any] = weights / weights.sum(axis=-1, keepdims=True) @ v
    return result


@pytest.mark.parametrize("scheme", [W8A8, nbits(4, 128)], ids=["int8", "int4"])
@pytest.mark.parametrize("num_rows", [1, 20])
def test_large_weights_are_copied_and_stay_the_same(
    tmp_path: Path, scheme: Any, num_rows: int
) -> None:
    """To pages of 2 MB, by the first of several concurrent calls."""
    x, weight = normal(num_rows, 1024), normal(5000, 1024)

    def build(g: Graph) -> str:
        g.huge_pages = True
        return linear(Activation(g, "x"), weight, scheme, "w")

    session = load(tmp_path, build, x=x)
    with ThreadPoolExecutor(4) as pool:
        concurrent = list(pool.map(lambda _: session.run(["y"], {"x": x})[0], range(8)))
    found = session.run(["y"], {"x": x})[0]
    for each in concurrent:
        np.testing.assert_array_equal(each, found)
    size = 32 if scheme.bits == 4 else 1024
    source = rounded(x.reshape(-1, size)).reshape(x.shape)
    matrix = kept(weight, 128) if scheme.bits == 4 else rounded(weight)
    assert_close(found, source @ matrix.T)


@pytest.mark.parametrize("block", [32, 128])
def test_a_token_in_4_bits_does_not_notice_its_neighbours(tmp_path: Path, block: int) -> None:
    x, gate, up = normal(19, 256), normal(24, 256), normal(24, 256)

    def build(g: Graph) -> str:
        return gated(Activation(g, "x"), gate, up, nbits(4, block), fused=True)

    whole = run(tmp_path, build, x=x)
    for first, last in ((0, 1), (3, 5), (8, 15), (11, 19)):
        part = run(tmp_path, build, x=x[first:last])
        np.testing.assert_array_equal(part, whole[first:last])


def test_a_prompt_in_4_bits_does_not_show_its_cuts(tmp_path: Path) -> None:
    """Rows by themselves give what they give among many. New tokens differ, but not with AVX2."""
    x, weight = normal(40, 128), normal(48, 128)

    def build(g: Graph) -> str:
        g.prompt = "prompt"
        return linear(Activation(g, "x"), weight, nbits(4, 32), "w")

    yes, no = np.array(1, np.int32), np.array(0, np.int32)
    whole = run(tmp_path, build, x=x, prompt=yes)
    np.testing.assert_array_equal(run(tmp_path, build, x=x[7:8], prompt=yes), whole[7:8])
    difference = np.abs(run(tmp_path, build, x=x[7:8], prompt=no) - whole[7:8]).max()
    assert (difference == 0) if native.capabilities().kernels == "avx2" else (difference > 1e-3)


def test_shapes_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    x, weight = normal(4, 128), normal(32, 64)
    with pytest.raises(Exception, match=r"qwink: .*is_matrix\(.*x,.* is not so"):
        run(tmp_path, lambda g: linear(Activation(g, "x"), weight, W8A8, "w"), x=x)
