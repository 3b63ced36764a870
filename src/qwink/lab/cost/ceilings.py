"""Operations and bytes per second that this machine reaches in a short trial.

Floors are computed from ONNX Runtime's products and plain reads; a faster kernel may be below them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

_ROWS, _INPUTS, _OUTPUTS = 784, 1024, 4096  # the first product of the 2B's vision MLP, 448×448 px
_READ_BYTES = 1 << 30  # larger than any cache
_TRIAL_S = 0.3


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Best of the trials with `threads` threads. Giga is 10⁹."""

    threads: int
    int8_gflop_per_s: float  # uint8 × int8 products of ONNX Runtime
    float_gflop_per_s: float  # fp32
    read_gb_per_s: float  # from memory


def measure_ceilings(threads: int, read_bytes: int = _READ_BYTES) -> Ceilings:
    """Takes about two seconds, and `read_bytes` of memory."""
    int8, fp32 = (_gflop_per_s(model, feed, threads) for model, feed in (_int8(), _fp32()))
    return Ceilings(threads, int8, fp32, _read_gb_per_s(threads, read_bytes))


def _best_seconds(run: Callable[[], Any]) -> float:
    """The shortest of all runs that fit in a trial; the first one warms up."""
    run()
    best, end = float("inf"), time.perf_counter() + _TRIAL_S
    while (start := time.perf_counter()) < end:
        run()
        best = min(best, time.perf_counter() - start)
    return best


def _read_gb_per_s(threads: int, num_bytes: int) -> float:
    data = np.ones(num_bytes // 4, np.float32)
    parts = np.array_split(data, threads)
    with ThreadPoolExecutor(threads) as pool:
        seconds = _best_seconds(lambda: list(pool.map(np.max, parts)))
    return round(data.nbytes / 1e9 / seconds, 1)


def _gflop_per_s(model: bytes, feed: dict[str, Any], threads: int) -> float:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    seconds = _best_seconds(lambda: session.run(None, feed))
    return round(2 * _ROWS * _INPUTS * _OUTPUTS / 1e9 / seconds, 1)


def _int8() -> tuple[bytes, dict[str, Any]]:
    """A model and its input: the operator of recipes with int8 products."""
    rng = np.random.default_rng(0)
    feed = rng.integers(0, 256, (_ROWS, _INPUTS), np.uint8)
    weights = {
        "w": rng.integers(-127, 128, (_INPUTS, _OUTPUTS), np.int8),
        "x_scale": np.float32(0.01),
        "w_scale": np.full(_OUTPUTS, 0.01, np.float32),
        "x_zero": np.uint8(128),
    }
    return _model("MatMulIntegerToFloat", "com.microsoft", feed, weights), {"x": feed}


def _fp32() -> tuple[bytes, dict[str, Any]]:
    rng = np.random.default_rng(0)
    feed = rng.standard_normal((_ROWS, _INPUTS), np.float32)
    weights = {"w": rng.standard_normal((_INPUTS, _OUTPUTS), np.float32)}
    return _model("MatMul", "", feed, weights), {"x": feed}


def _model(operator: str, domain: str, feed: Any, weights: dict[str, Any]) -> bytes:
    """A graph of one product: x [rows, inputs] times constants → y [rows, outputs]."""
    from onnx import TensorProto, helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(feed.dtype)
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *weights], ["y"], domain=domain)],
        "product",
        [helper.make_tensor_value_info("x", kind, feed.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (_ROWS, _OUTPUTS))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    return model
