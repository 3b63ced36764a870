"""The vision encoder as one ONNX graph that runs a part at a time.

The engine runs steps of answers between two parts, so that streams need not wait for a whole
picture. The parts are branches of one graph, not graphs each: they share the threads and the
scratch memory of one session.

Reference: transformers `Qwen3VLVisionModel`. Shapes: B images (or frames) of one grid, P patches
each, V = P / merge² tokens, D hidden, O output size, R = B·P rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qwink.export.graph import MICROSOFT, NATIVE, Graph
from qwink.export.linear import Activation, Float, Norm, linear, native_attributes, normalize
from qwink.export.pack import PANEL
from qwink.export.recipe import FP32, Scheme
from qwink.export.stream import Stream
from qwink.model.config import ModelConfig, VisionConfig
from qwink.model.fold import fold_frame_embedding, fold_patch_embedding
from qwink.model.weights import Weights

PREFIX = "model.visual."


def build_vision(graph: Graph, config: ModelConfig, weights: Weights, scheme: Scheme) -> None:
    """Add the encoder to `graph`.

    Inputs: `part` int64 [], which part runs, from 0 to `num_parts` - 1, where part `num_parts`
    replaces part 0 for frames of a video; `patches` uint8 [B, P, 3·patch²], or [B, P, 3·T·patch²]
    for T frames; `positions` float32 [P, D] (the learned embedding, interpolated to the grid),
    `cos` and `sin` float32 [P, head_dim / 2]; `stream` float32, the residual stream that earlier
    parts gave, anything for part 0.
    Outputs: `stream` float32 as `next_stream`, empty where `tokens` float32 [B·V, O] is not: a
    part gives either. Tokens are DeepStack features in the order of their layers, and in the last
    part the image's tokens.
    """
    encoder = Encoder(graph, config, weights, scheme)
    vision = config.vision
    part = graph.input("part", np.int64, [])
    branches = [graph.branch("patches")]
    encoder.give_stream(encoder.embed(branches[0], fold_patch_embedding))
    before = graph.input("stream", np.float32, encoder.stream_shape())
    for layer in range(vision.depth):
        branches.append(graph.branch(f"layer{layer}"))
        stream = encoder.resume(branches[-1], before)
        encoder.layer(stream, layer)
        encoder.give_stream(stream)
        if layer in vision.deepstack_layers:
            branches.append(graph.branch(f"tap{layer}"))
            stream = encoder.resume(branches[-1], before)
            encoder.give_tokens(stream.graph, encoder.tap(stream, layer))
    branches.append(graph.branch("merger"))
    stream = encoder.resume(branches[-1], before)
    encoder.give_tokens(stream.graph, encoder.merge(stream))
    branches.append(graph.branch("frames"))
    encoder.give_stream(encoder.embed(branches[-1], fold_frame_embedding))
    stream_out, tokens = graph.choose(part, branches)
    graph.output(stream_out, "next_stream", np.float32, encoder.stream_shape())
    graph.output(tokens, "tokens", np.float32, ["tokens", vision.out_hidden_size])


class Encoder:
    """Adds pieces of the encoder to `graph`, which has its inputs, or to branches of it."""

    def __init__(self, graph: Graph, config: ModelConfig, weights: Weights, scheme: Scheme) -> None:
        self._config, self._vision = config, config.vision
        self._weights, self._scheme = weights, scheme
        vision, half = config.vision, config.vision.head_dim // 2
        self._patches = graph.input("patches", np.uint8, ["B", "P", "values"])
        self._positions = graph.input("positions", np.float32, ["P", vision.hidden_size])
        self._cos = graph.input("cos", np.float32, ["P", half])
        self._sin = graph.input("sin", np.float32, ["P", half])
        self._panels = Stream(graph, "", vision.hidden_size, panels=True, stored=True).panels

    def stream_shape(self) -> list[int | str]:
        """Of the residual stream between two parts."""
        hidden = self._vision.hidden_size
        return [hidden // PANEL, "rows", PANEL] if self._panels else ["rows", hidden]

    def resume(self, graph: Graph, value: str) -> Stream:
        """The stream whose `stored` value an earlier part gave."""
        return Stream(graph, value, self._vision.hidden_size, panels=True, stored=True)

    def embed(self, graph: Graph, fold: Callable[..., tuple[Float, Float]]) -> Stream:
        """Patches → the residual stream. `fold` is a function of `model.fold`."""
        vision = self._vision
        weight, bias = fold(
            self._tensor("patch_embed.proj.weight"),
            self._tensor("patch_embed.proj.bias"),
            self._config.preprocessor,
        )
        as_rows = graph.constant([-1, vision.hidden_size], np.int64)
        # uint8 in, so that the graph's input is a quarter of the size.
        x = graph.node("Cast", [self._patches], to=1)  # float
        x = graph.node("Reshape", [x, graph.constant([-1, weight.shape[1]], np.int64)])
        x = linear(Activation(graph, x), weight, FP32, "patch")
        x = graph.node("Reshape", [x, self._as_batch(graph)])  # [B, P, D]
        position = graph.node("Add", [self._positions, graph.weight(bias, "bias")])
        x = graph.node("Reshape", [graph.node("Add", [x, position]), as_rows])
        return Stream(graph, x, vision.hidden_size, panels=True)

    def layer(self, stream: Stream, layer: int) -> None:
        """One transformer layer."""
        graph, panels = stream.graph, stream.panels
        scheme, hidden = self._scheme, self._vision.hidden_size
        block = f"blocks.{layer}"
        source = stream.normalized(self._norm(f"{block}.norm1"))
        weight, bias = self._affine(f"{block}.attn.qkv")
        q, k, v = (slice(part * hidden, (part + 1) * hidden) for part in range(3))
        # The value's bias passes through attention unchanged, see below.
        heads = [
            linear(source, weight[q], scheme, "q", bias=bias[q], panels=panels),
            linear(source, weight[k], scheme, "k", bias=bias[k], panels=panels),
            linear(source, weight[v], scheme, "v", panels=panels),
        ]
        attended = self._attend(graph, heads, panels=panels)
        # Attention weights sum to one: W(a + b_v) + b = W a + (W b_v + b).
        weight = self._tensor(f"{block}.attn.proj.weight")
        bias = self._tensor(f"{block}.attn.proj.bias") + weight @ bias[2 * hidden :]
        source = Activation(graph, attended, panels=panels)
        stream.add_product(source, weight, scheme, "proj", bias)

        source = stream.normalized(self._norm(f"{block}.norm2"))
        weight, bias = self._affine(f"{block}.mlp.linear_fc1")
        x = linear(source, weight, scheme, "fc1", bias=bias, gelu=True, panels=panels)
        weight, bias = self._affine(f"{block}.mlp.linear_fc2")
        stream.add_product(Activation(graph, x, panels=panels), weight, scheme, "fc2", bias)

    def tap(self, stream: Stream, layer: int) -> str:
        """The DeepStack features [V, O] behind a layer."""
        index = self._vision.deepstack_layers.index(layer)
        return self._merge(stream, f"deepstack_merger_list.{index}", normalize_merged=True)

    def merge(self, stream: Stream) -> str:
        """The image's tokens [V, O]."""
        return self._merge(stream, "merger", normalize_merged=False)

    def give_stream(self, stream: Stream) -> None:
        """Make a stream what its branch gives."""
        graph = stream.graph
        graph.result(stream.stored(), np.float32, self.stream_shape())
        size = self._vision.out_hidden_size
        graph.result(graph.constant(np.zeros((0, size), np.float32)), np.float32, [0, size])

    def give_tokens(self, graph: Graph, tokens: str) -> None:
        """Make tokens what a branch gives."""
        shape = [0 if isinstance(size, str) else size for size in self.stream_shape()]
        graph.result(graph.constant(np.zeros(shape, np.float32)), np.float32, [*shape])
        graph.result(tokens, np.float32, ["tokens", self._vision.out_hidden_size])

    def _tensor(self, name: str) -> Float:
        return self._weights.read(PREFIX + name)

    def _affine(self, name: str) -> tuple[Float, Float]:
        return self._tensor(f"{name}.weight"), self._tensor(f"{name}.bias")

    def _norm(self, name: str) -> Norm:
        gamma, beta = self._affine(name)
        return Norm(gamma, self._vision.layer_norm_eps, beta)

    def _as_batch(self, graph: Graph) -> str:
        """The shape [B, P, -1]."""
        batch = graph.node("Shape", [self._patches], start=0, end=2)  # [B, P]
        return graph.node("Concat", [batch, graph.constant([-1], np.int64)], axis=0)

    def _attend(self, graph: Graph, heads: list[str], *, panels: bool) -> str:
        """Queries, keys and values, before their rotation → [R, D], or in panels."""
        vision, cos, sin = self._vision, self._cos, self._sin
        if graph.native:
            attributes = native_attributes(
                graph, vision.hidden_size, panels=panels, num_heads=vision.num_heads
            )
            outputs = [graph.fresh("attended"), graph.fresh("scratch")]
            inputs = [*heads, cos, sin]
            return graph.nodes("ImageAttention", inputs, outputs, domain=NATIVE, **attributes)[0]
        as_batch = self._as_batch(graph)
        q, k, v = (graph.node("Reshape", [head, as_batch]) for head in heads)  # [B, P, D]
        q, k = (_rotate(graph, head, cos, sin, vision) for head in (q, k))
        attended = graph.node(
            "MultiHeadAttention", [q, k, v], domain=MICROSOFT, num_heads=vision.num_heads
        )
        as_rows = graph.constant([-1, vision.hidden_size], np.int64)
        return graph.node("Reshape", [attended, as_rows])

    def _merge(self, stream: Stream, name: str, *, normalize_merged: bool) -> str:
        """The stream's rows [R, D] → [R / merge², O]."""
        graph, vision, x = stream.graph, self._vision, stream.rows()
        norm = self._norm(f"{name}.norm")
        merged = graph.constant([-1, vision.hidden_size * vision.merge_size**2], np.int64)
        if normalize_merged:
            source = Activation(graph, graph.node("Reshape", [x, merged]), norm)
        else:
            x = normalize(graph, x, norm)
            source = Activation(graph, graph.node("Reshape", [x, merged]))
        weight, bias = self._affine(f"{name}.linear_fc1")
        x = graph.node("Gelu", [linear(source, weight, self._scheme, "merge1", bias=bias)])
        weight, bias = self._affine(f"{name}.linear_fc2")
        return linear(Activation(graph, x), weight, self._scheme, "merge2", bias=bias)


def _rotate(graph: Graph, x: str, cos: str, sin: str, vision: VisionConfig) -> str:
    """2-D rotary embedding of [B, P, D]; the tables hold a row per patch."""
    first = graph.constant([0], np.int64)  # rows 0, 1, … for every image
    return graph.node(
        "RotaryEmbedding",
        [x, first, cos, sin],
        domain=MICROSOFT,
        num_heads=vision.num_heads,
        rotary_embedding_dim=vision.head_dim,
    )
