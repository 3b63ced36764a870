"""Graphs of one node of ours, and the sets of kernels that a library runs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper

Array = NDArray[Any]
Float = NDArray[np.float32]
OUTPUTS: dict[str, tuple[Any, ...]] = {
    "QuantizeRows": (np.uint8, np.float32),
    "ProductInt8": (np.float32,),
    "ProductInt4": (np.float32, np.uint8),
    "ImageAttention": (np.float32, np.uint8),
    "TextAttention": (np.float32, np.float16, np.float16, np.uint8),
}
ATTRIBUTES: dict[str, float] = {
    "norm": 0,
    "activation": 0,
    "panels": 0,
    "columns": 1,
    "huge_pages": 0,
    "num_heads": 0,
    "num_kv_heads": 0,
    "epsilon": 1e-6,
}
PANEL = 32


def supported(library: Path) -> list[str]:
    """The sets of kernels that a compiled library runs here, fastest first."""
    if not library.exists():
        return []
    function = ctypes.CDLL(str(library)).qwink_kernels_supported
    function.argtypes, function.restype = [ctypes.c_int], ctypes.c_char_p
    names: list[str] = []
    while name := function(len(names)):
        names.append(name.decode())
    return names


def in_use(library: Path) -> str:
    """The set that operators created now would use."""
    function = ctypes.CDLL(str(library)).qwink_kernels
    function.restype = ctypes.c_char_p
    name: bytes = function()
    return name.decode()


def choose(library: Path, name: str | None) -> bool:
    """Operators created afterwards use this set; None: the fastest. False: it does not run here."""
    encoded = None if name is None else name.encode()
    function = ctypes.CDLL(str(library)).qwink_choose_kernels
    function.argtypes = [ctypes.c_char_p]
    result: int = function(encoded)
    return result == 0


def session(
    library: Path,
    op: str,
    inputs: Sequence[tuple[str, Any] | None],
    **attributes: float,
) -> ort.InferenceSession:
    """A graph of one node. `inputs`: name and type of each, None for one that is left out."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
        for name, dtype in filter(None, inputs)
    ]
    outputs = [f"out{i}" for i in range(len(OUTPUTS[op]))]
    results = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
        for name, kind in zip(outputs, OUTPUTS[op], strict=True)
    ]
    node = helper.make_node(
        op,
        [each[0] if each else "" for each in inputs],
        outputs,
        domain="qwink",
        **{**ATTRIBUTES, **attributes},
    )
    model = helper.make_model(
        helper.make_graph([node], "one", infos, results),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("qwink", 1)],
        ir_version=10,
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False  # sanitizers then see the end of every tensor
    options.intra_op_num_threads = 2
    options.register_custom_ops_library(str(library))
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(
    library: Path, op: str, inputs: Mapping[str, Array | None], **attributes: float
) -> list[Array]:
    """All outputs of one node."""
    given = {name: value for name, value in inputs.items() if value is not None}
    kinds = [None if value is None else (name, value.dtype) for name, value in inputs.items()]
    results: list[Array] = session(library, op, kinds, **attributes).run(None, given)
    return results


def to_panels(rows: Float) -> Float:
    padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % PANEL)))
    return np.ascontiguousarray(padded.reshape(rows.shape[0], -1, PANEL).transpose(1, 0, 2))


def from_panels(panels: Float, num_columns: int) -> Float:
    return panels.transpose(1, 0, 2).reshape(panels.shape[1], -1)[:, :num_columns]
