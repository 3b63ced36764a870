"""The vision encoder as one ONNX graph: patches in, image tokens and DeepStack features out.

Reference: transformers `Qwen3VLVisionModel`. Shapes: B images (or frames) of one grid, P patches
each, V = P / merge² tokens, D hidden, O output size, R = B·P rows.
"""

from __future__ import annotations

import numpy as np

from qwink.export.graph import MICROSOFT, Graph
from qwink.export.linear import Activation, Float, linear
from qwink.export.recipe import FP32, Scheme
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

    def norm(x: str, name: str) -> str:
        gamma = graph.weight(tensor(f"{name}.weight"), "norm")
        beta = graph.weight(tensor(f"{name}.bias"), "norm")
        eps = vision.layer_norm_eps
        return graph.node("LayerNormalization", [x, gamma, beta], epsilon=eps, axis=-1)

    def add(x: str, bias: Float) -> str:
        return graph.node("Add", [x, graph.weight(bias, "bias")])

    def add_norm(x: str, skip: str, bias: Float, name: str) -> tuple[str, str]:
        """norm(x + bias + skip), and the sum itself.

        Not SkipLayerNormalization: on a CPU that takes more than twice the time of its parts.
        """
        total = graph.node("Add", [add(x, bias), skip])
        return norm(total, name), total

    def merge(x: str, name: str, *, normalize_merged: bool) -> str:
        """x [R, D] → [R / merge², O]."""
        merged = graph.constant([-1, hidden * vision.merge_size**2], np.int64)
        if normalize_merged:
            x = norm(graph.node("Reshape", [x, merged]), f"{name}.norm")
        else:
            x = graph.node("Reshape", [norm(x, f"{name}.norm"), merged])
        x = linear(Activation(graph, x), tensor(f"{name}.linear_fc1.weight"), scheme, "merge1")
        x = graph.node("Gelu", [add(x, tensor(f"{name}.linear_fc1.bias"))])
        x = linear(Activation(graph, x), tensor(f"{name}.linear_fc2.weight"), scheme, "merge2")
        return add(x, tensor(f"{name}.linear_fc2.bias"))

    # Patch embedding: uint8 in, so that the graph's input is a quarter of the size.
    weight, bias = fold_patch_embedding(
        tensor("patch_embed.proj.weight"), tensor("patch_embed.proj.bias"), config.preprocessor
    )
    x = graph.node("Cast", [patches], to=1)  # float
    x = graph.node("Reshape", [x, graph.constant([-1, patch_bytes], np.int64)])
    x = linear(Activation(graph, x), weight, FP32, "patch")
    x = graph.node("Reshape", [x, as_batch])  # [B, P, D]
    x = graph.node("Add", [x, graph.node("Add", [positions, graph.weight(bias, "bias")])])
    residual = graph.node("Reshape", [x, as_rows])  # [R, D]

    taps: list[str] = []
    y = norm(residual, "blocks.0.norm1")
    for layer in range(vision.depth):
        block = f"blocks.{layer}"
        weight, bias = tensor(f"{block}.attn.qkv.weight"), tensor(f"{block}.attn.qkv.bias")
        source, heads = Activation(graph, y), []
        for part, stem in enumerate(("q", "k", "v")):
            span = slice(part * hidden, (part + 1) * hidden)
            head = linear(source, weight[span], scheme, stem)
            if stem != "v":  # the value's bias passes through attention unchanged, see below
                head = add(head, bias[span])
            head = graph.node("Reshape", [head, as_batch])  # [B, P, D]
            heads.append(head if stem == "v" else _rotate(graph, head, cos, sin, vision))
        attended = graph.node(
            "MultiHeadAttention", heads, domain=MICROSOFT, num_heads=vision.num_heads
        )
        attended = graph.node("Reshape", [attended, as_rows])
        # Attention weights sum to one: W(a + b_v) + b = W a + (W b_v + b).
        weight = tensor(f"{block}.attn.proj.weight")
        bias = tensor(f"{block}.attn.proj.bias") + weight @ bias[2 * hidden :]
        x = linear(Activation(graph, attended), weight, scheme, "proj")
        y, residual = add_norm(x, residual, bias, f"{block}.norm2")

        x = linear(Activation(graph, y), tensor(f"{block}.mlp.linear_fc1.weight"), scheme, "fc1")
        x = add(x, tensor(f"{block}.mlp.linear_fc1.bias"))
        x = graph.node("Gelu", [x], approximate="tanh")
        x = linear(Activation(graph, x), tensor(f"{block}.mlp.linear_fc2.weight"), scheme, "fc2")
        bias = tensor(f"{block}.mlp.linear_fc2.bias")
        if layer + 1 < vision.depth:
            y, residual = add_norm(x, residual, bias, f"blocks.{layer + 1}.norm1")
        else:
            residual = graph.node("Add", [add(x, bias), residual])
        if layer in vision.deepstack_layers:
            index = vision.deepstack_layers.index(layer)
            tap = merge(residual, f"deepstack_merger_list.{index}", normalize_merged=True)
            taps.append(graph.node("Unsqueeze", [tap, graph.constant([0], np.int64)]))

    embeds = merge(residual, "merger", normalize_merged=False)
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
