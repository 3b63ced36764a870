"""The vision encoder as one ONNX graph: patches in, image tokens and DeepStack features out.

Reference: transformers `Qwen3VLVisionModel`. Shapes: B images (or frames) of one grid, P patches
each, V = P / merge² tokens, D hidden, O output size, R = B·P rows.
"""

from __future__ import annotations

import numpy as np

from qwink.export.graph import MICROSOFT, NATIVE, Graph
from qwink.export.linear import Activation, Float, Norm, linear, native_attributes, normalize
from qwink.export.recipe import FP32, Scheme
from qwink.export.stream import Stream
from qwink.model.config import ModelConfig, VisionConfig
from qwink.model.fold import fold_patch_embedding
from qwink.model.weights import Weights

PREFIX = "model.visual."


def build_vision(graph: Graph, config: ModelConfig, weights: Weights, scheme: Scheme) -> None:
    """Add the encoder to `graph`.

    Inputs: `patches` uint8 [B, P, 3·patch²], `positions` float32 [P, D] (the learned embedding,
    interpolated to the grid), `cos` and `sin` float32 [P, head_dim / 2].
    Outputs: `embeds` [B·V, O], `deepstack` [taps, B·V, O].
    """
    vision = config.vision
    hidden, rows = vision.hidden_size, [-1, vision.hidden_size]
    patch_bytes = vision.in_channels * vision.patch_size**2
    patches = graph.input("patches", np.uint8, ["B", "P", patch_bytes])
    positions = graph.input("positions", np.float32, ["P", hidden])
    half = vision.head_dim // 2
    cos = graph.input("cos", np.float32, ["P", half])
    sin = graph.input("sin", np.float32, ["P", half])
    as_rows = graph.constant(rows, np.int64)
    batch = graph.node("Shape", [patches], start=0, end=2)  # [B, P]
    as_batch = graph.node("Concat", [batch, graph.constant([-1], np.int64)], axis=0)

    def tensor(name: str) -> Float:
        return weights.read(PREFIX + name)

    def affine(name: str) -> tuple[Float, Float]:
        return tensor(f"{name}.weight"), tensor(f"{name}.bias")

    def norm(name: str) -> Norm:
        gamma, beta = affine(name)
        return Norm(gamma, vision.layer_norm_eps, beta)

    def attend(heads: list[str], cos: str, sin: str) -> str:
        """Queries, keys and values, before their rotation → [R, D], or in panels."""
        if graph.native:
            attributes = native_attributes(graph, hidden, panels=panels, num_heads=vision.num_heads)
            outputs = [graph.fresh("attended"), graph.fresh("scratch")]
            inputs = [*heads, cos, sin]
            return graph.nodes("ImageAttention", inputs, outputs, domain=NATIVE, **attributes)[0]
        q, k, v = (graph.node("Reshape", [head, as_batch]) for head in heads)  # [B, P, D]
        q, k = (_rotate(graph, head, cos, sin, vision) for head in (q, k))
        attended = graph.node(
            "MultiHeadAttention", [q, k, v], domain=MICROSOFT, num_heads=vision.num_heads
        )
        return graph.node("Reshape", [attended, as_rows])

    def merge(x: str, name: str, *, normalize_merged: bool) -> str:
        """x [R, D] → [R / merge², O]."""
        merged = graph.constant([-1, hidden * vision.merge_size**2], np.int64)
        if normalize_merged:
            source = Activation(graph, graph.node("Reshape", [x, merged]), norm(f"{name}.norm"))
        else:
            x = normalize(graph, x, norm(f"{name}.norm"))
            source = Activation(graph, graph.node("Reshape", [x, merged]))
        weight, bias = affine(f"{name}.linear_fc1")
        x = graph.node("Gelu", [linear(source, weight, scheme, "merge1", bias=bias)])
        weight, bias = affine(f"{name}.linear_fc2")
        return linear(Activation(graph, x), weight, scheme, "merge2", bias=bias)

    # Patch embedding: uint8 in, so that the graph's input is a quarter of the size.
    weight, bias = fold_patch_embedding(
        tensor("patch_embed.proj.weight"), tensor("patch_embed.proj.bias"), config.preprocessor
    )
    x = graph.node("Cast", [patches], to=1)  # float
    x = graph.node("Reshape", [x, graph.constant([-1, patch_bytes], np.int64)])
    x = linear(Activation(graph, x), weight, FP32, "patch")
    x = graph.node("Reshape", [x, as_batch])  # [B, P, D]
    x = graph.node("Add", [x, graph.node("Add", [positions, graph.weight(bias, "bias")])])
    stream = Stream(graph, graph.node("Reshape", [x, as_rows]), hidden, panels=True)
    panels = stream.panels

    taps: list[str] = []
    for layer in range(vision.depth):
        block = f"blocks.{layer}"
        source = stream.normalized(norm(f"{block}.norm1"))
        weight, bias = affine(f"{block}.attn.qkv")
        q, k, v = (slice(part * hidden, (part + 1) * hidden) for part in range(3))
        # The value's bias passes through attention unchanged, see below.
        heads = [
            linear(source, weight[q], scheme, "q", bias=bias[q], panels=panels),
            linear(source, weight[k], scheme, "k", bias=bias[k], panels=panels),
            linear(source, weight[v], scheme, "v", panels=panels),
        ]
        attended = attend(heads, cos, sin)
        # Attention weights sum to one: W(a + b_v) + b = W a + (W b_v + b).
        weight = tensor(f"{block}.attn.proj.weight")
        bias = tensor(f"{block}.attn.proj.bias") + weight @ bias[2 * hidden :]
        source = Activation(graph, attended, panels=panels)
        stream.add_product(source, weight, scheme, "proj", bias)

        source = stream.normalized(norm(f"{block}.norm2"))
        weight, bias = affine(f"{block}.mlp.linear_fc1")
        x = linear(source, weight, scheme, "fc1", bias=bias, gelu=True, panels=panels)
        weight, bias = affine(f"{block}.mlp.linear_fc2")
        stream.add_product(Activation(graph, x, panels=panels), weight, scheme, "fc2", bias)
        if layer in vision.deepstack_layers:
            index = vision.deepstack_layers.index(layer)
            tap = merge(stream.rows(), f"deepstack_merger_list.{index}", normalize_merged=True)
            taps.append(graph.node("Unsqueeze", [tap, graph.constant([0], np.int64)]))

    embeds = merge(stream.rows(), "merger", normalize_merged=False)
    size = vision.out_hidden_size
    graph.output(embeds, "embeds", np.float32, ["tokens", size])
    if taps:
        deepstack = graph.node("Concat", taps, axis=0)
        graph.output(deepstack, "deepstack", np.float32, [len(taps), "tokens", size])


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
