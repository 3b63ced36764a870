"""The residual stream of a transformer: layers read its norm and add to it."""

from __future__ import annotations

import numpy as np

from qwink.export.graph import MICROSOFT, Graph
from qwink.export.linear import Activation, Float, Matrix, Norm, linear
from qwink.export.pack import PANEL
from qwink.export.recipe import Scheme


class Stream:
    """A value [rows, D] that grows by sums.

    With our operators it lies in panels, [D / 32, rows, 32], where `panels` asks for it, and
    products add to it themselves. With ONNX Runtime's, a sum waits for the norm that follows it.
    """

    def __init__(
        self, graph: Graph, value: str, size: int, *, panels: bool = False, stored: bool = False
    ) -> None:
        """`stored`: the value is the `stored` one of another stream, and lies as that did."""
        self.graph = graph
        self.panels = panels and graph.native and size % PANEL == 0
        self._size = size
        self._value = self._to_panels(value) if self.panels and not stored else value
        self._waiting: str | None = None

    def add_product(
        self, x: Activation, weight: Matrix, scheme: Scheme, stem: str, bias: Float | None = None
    ) -> None:
        """Add x · weightᵀ + bias."""
        if self.graph.native and scheme.kind != "fp32":
            self._value = linear(
                x, weight, scheme, stem, bias=bias, skip=self._value, panels=self.panels
            )
        else:
            self._settle()
            self._waiting = linear(x, weight, scheme, stem, bias=bias)

    def add(self, x: str) -> None:
        """Add rows [rows, D]."""
        self._settle()
        x = self._to_panels(x) if self.panels else x
        self._value = self.graph.node("Add", [self._value, x])

    def normalized(self, norm: Norm) -> Activation:
        """What the next layer reads."""
        g = self.graph
        if self._waiting is not None and norm.beta is None:
            # Sum and norm in one pass. LayerNorm has such an operator too, but on a CPU it takes
            # more than twice the time of its parts.
            inputs = [self._waiting, self._value, *norm.weights(g)]
            outputs = [g.fresh("norm"), "", "", g.fresh("residual")]
            op = "SkipSimplifiedLayerNormalization"
            g.nodes(op, inputs, outputs, domain=MICROSOFT, epsilon=norm.epsilon)
            self._value, self._waiting = outputs[3], None
            return Activation(g, outputs[0])
        self._settle()
        return Activation(g, self._value, norm, panels=self.panels)

    def select(self, rows: str) -> None:
        """Go on with these rows only."""
        self._settle()
        self._value = self.graph.node("Gather", [self._value, rows], axis=1 if self.panels else 0)

    def rows(self) -> str:
        """The value as rows [rows, D]."""
        self._settle()
        if not self.panels:
            return self._value
        shape = self.graph.constant([-1, self._size], np.int64)
        turned = self.graph.node("Transpose", [self._value], perm=[1, 0, 2])
        return self.graph.node("Reshape", [turned, shape])

    def stored(self) -> str:
        """The value as it lies, from which another graph can go on."""
        self._settle()
        return self._value

    def _settle(self) -> None:
        if self._waiting is not None:
            self._value = self.graph.node("Add", [self._waiting, self._value])
            self._waiting = None

    def _to_panels(self, x: str) -> str:
        shape = self.graph.constant([-1, self._size // PANEL, PANEL], np.int64)
        return self.graph.node(
            "Transpose", [self.graph.node("Reshape", [x, shape])], perm=[1, 0, 2]
        )
