"""A small ONNX graph builder: named nodes in, one .onnx file and one file of raw tensors out.

It knows nothing of models. Large tensors are written to disk when they are added, so that a graph
of gigabytes is built with the memory of its largest tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from qwink.export.target import Target
from qwink.model.weights import Rows

MICROSOFT = "com.microsoft"
NATIVE = "qwink"  # our own operators
OPSET = 21
IR_VERSION = 10
ALIGNMENT = 4096  # a page, so that onnxruntime can map the tensor
INLINE_BYTES = 1024  # smaller tensors live in the graph itself
ROWS_PER_WRITE = 4096


class WeightFile:
    """A file of raw tensors, written one after the other, each at a page boundary."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("wb")

    def append(self, array: NDArray[Any] | Rows) -> tuple[int, int]:
        """Write `array` in C order. Returns (offset, length) in bytes."""
        offset = -(-self._file.tell() // ALIGNMENT) * ALIGNMENT
        self._file.seek(offset)
        for start in range(0, array.shape[0], ROWS_PER_WRITE):
            rows = np.ascontiguousarray(array[start : start + ROWS_PER_WRITE])
            self._file.write(rows.data.cast("B"))
        return offset, array.nbytes

    def close(self) -> None:
        self._file.close()


class Graph:
    """Collects the nodes of one graph. Values are referred to by name.

    `prompt` names the input, if there is one, that tells our operators whether rows are tokens of a
    prompt or new tokens of answers. `huge_pages`: our operators copy weights to pages of 2 MB at
    first use, for graphs that read all weights for a few rows.
    """

    prompt = ""
    huge_pages = False

    def __init__(
        self,
        name: str,
        weights: WeightFile,
        target: Target | None = None,
        prefix: str = "",
    ) -> None:
        """`prefix` begins all names that the graph makes up."""
        self._name, self._prefix = name, prefix
        self.target = target or Target()
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._initializers: list[TensorProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._count = 0

    @property
    def native(self) -> bool:
        """Whether the graph may use our own operators."""
        return self.target.layout != "onnxruntime"

    def _unique(self, stem: str) -> str:
        self._count += 1
        return f"{self._prefix}{stem}_{self._count}"

    def branch(self, name: str) -> Graph:
        """An empty graph for `choose`. It may refer to the values of this graph."""
        branch = Graph(name, self._weights, self.target, f"{self._prefix}{name}.")
        branch.prompt, branch.huge_pages = self.prompt, self.huge_pages
        return branch

    def result(self, value: str, dtype: Any, shape: list[int | str]) -> None:
        """Give `value` out under its own name, as the next output of a branch."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._outputs.append(helper.make_tensor_value_info(value, kind, shape))

    def choose(self, index: str, branches: Sequence[Graph]) -> list[str]:
        """Run only the branch whose number is in `index`, an int64 scalar.

        Returns the outputs, of which each branch has as many. A tree of If operators chooses, so
        that a run passes few of them. There must be two branches or more.
        """
        return self._choose(index, branches, 0)

    def _choose(self, index: str, branches: Sequence[Graph], first: int) -> list[str]:
        half = len(branches) // 2
        lower = self._subtree(index, branches[:half], first)
        upper = self._subtree(index, branches[half:], first + half)
        is_lower = self.node("Less", [index, self.constant(first + half, np.int64)])
        outputs = [self.fresh("chosen") for _ in lower._outputs]
        subgraphs = {"then_branch": lower._proto(), "else_branch": upper._proto()}
        return self.nodes("If", [is_lower], outputs, **subgraphs)

    def _subtree(self, index: str, branches: Sequence[Graph], first: int) -> Graph:
        if len(branches) == 1:
            return branches[0]
        tree = self.branch(f"from{first}to{first + len(branches)}")
        chosen = tree._choose(index, branches, first)
        for name, output in zip(chosen, branches[0]._outputs, strict=True):
            kind = output.type.tensor_type.elem_type
            tree._outputs.append(helper.make_tensor_value_info(name, kind, None))
        return tree

    def input(self, name: str, dtype: Any, shape: list[int | str]) -> str:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, dtype: Any, shape: list[int | str]) -> None:
        """Give `value` out under `name`; nodes that already carry that name need no copy."""
        if value != name:
            self._nodes.append(helper.make_node("Identity", [value], [name], name=f"out_{name}"))
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def constant(self, array: Any, dtype: Any = None) -> str:
        """A small tensor inside the graph; equal ones are shared."""
        data = np.asarray(array, dtype=dtype)
        key = (data.dtype.str, data.shape, data.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self._unique("const")
            self._initializers.append(numpy_helper.from_array(data, name))
        return self._constants[key]

    def weight(self, array: NDArray[Any] | Rows, stem: str) -> str:
        """A tensor of the model, in the weight file unless it is small."""
        name = self._unique(stem)
        if array.nbytes <= INLINE_BYTES:
            array = array[:]
            self._initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
            return name
        offset, length = self._weights.append(array)
        tensor = TensorProto(
            name=name,
            dims=array.shape,
            data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
            data_location=TensorProto.EXTERNAL,
        )
        for key, value in (
            ("location", self._weights.path.name),
            ("offset", str(offset)),
            ("length", str(length)),
        ):
            tensor.external_data.add(key=key, value=value)
        self._initializers.append(tensor)
        return name

    def node(
        self, op: str, inputs: list[str], *, domain: str = "", out: str | None = None, **attrs: Any
    ) -> str:
        """Add a node with one output; returns the output's name."""
        return self.nodes(op, inputs, [out or self._unique(op)], domain=domain, **attrs)[0]

    def nodes(
        self, op: str, inputs: list[str], outputs: list[str], *, domain: str = "", **attrs: Any
    ) -> list[str]:
        """Add a node whose outputs are named; an empty name means that it is not wanted."""
        name = self._unique(f"n_{op}")
        self._nodes.append(helper.make_node(op, inputs, outputs, name=name, domain=domain, **attrs))
        return outputs

    def fresh(self, stem: str) -> str:
        """A value name not used so far."""
        return self._unique(stem)

    def _proto(self) -> onnx.GraphProto:
        return helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, self._initializers
        )

    def save(self, path: Path) -> None:
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        if self.native:
            opsets.append(helper.make_opsetid(NATIVE, 1))
        model = helper.make_model(self._proto(), opset_imports=opsets, ir_version=IR_VERSION)
        model.producer_name = "qwink"
        path.write_bytes(model.SerializeToString())
