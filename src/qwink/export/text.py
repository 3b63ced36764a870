"""The decoder as ONNX graphs: prefill, decode, and the LM head beside them.

Reference: transformers `Qwen3VLTextModel`. Shapes: B sequences, S new tokens each, R = B·S rows,
D hidden, H query heads, K key/value heads, M the cache's capacity, d = head_dim.
"""

from __future__ import annotations

import numpy as np

from qwink.export.graph import MICROSOFT, Graph
from qwink.export.linear import Activation, linear
from qwink.export.recipe import Recipe, Scheme
from qwink.export.smooth import Float, Loudness
from qwink.model.config import ModelConfig
from qwink.model.weights import Weights

PREFIX = "model.language_model."
EMBEDDINGS_SEEN = 4096  # enough of them to tell a loud channel


def build_text(
    graph: Graph,
    config: ModelConfig,
    weights: Weights,
    schemes: list[dict[str, Scheme]],
    *,
    fused: bool,
    with_deepstack: bool,
) -> None:
    """Add the decoder layers to `graph`, without embedding, final norm and LM head.

    Inputs: `embeds` float32 [B, S, D]; `deepstack` float32 [taps, R, D] if `with_deepstack`, zero
    where there is no image; `select` int64 [L], the rows wanted at the end; `lengths` int32 [B],
    each sequence's tokens in the cache *after* this step, less one; `total` int32, the largest of
    them plus one; `rows` int64 [B, S], each token's row in `cos` and `sin` [*, d / 2]; and for
    each layer i `past_key_i`, `past_value_i` float32 [B, K, M, d].
    Outputs: `hidden` [L, D], `present_key_i`, `present_value_i`. Bind past and present to the same
    memory: the operator then writes the new rows in place.

    `fused` joins q/k/v and gate/up into one product each: faster for single tokens, slower for
    many, where splitting the result costs more than it saves.
    """
    text = config.text
    d, hidden_size = text.head_dim, text.hidden_size
    embeds = graph.input("embeds", np.float32, ["B", "S", hidden_size])
    num_taps = len(config.vision.deepstack_layers) if with_deepstack else 0
    if num_taps:
        deepstack = graph.input("deepstack", np.float32, [num_taps, "R", hidden_size])
    select = graph.input("select", np.int64, ["L"])
    lengths = graph.input("lengths", np.int32, ["B"])
    total = graph.input("total", np.int32, [])
    rows = graph.input("rows", np.int64, ["B", "S"])
    cos = graph.input("cos", np.float32, ["N", d // 2])
    sin = graph.input("sin", np.float32, ["N", d // 2])

    batch = graph.node("Shape", [embeds], start=0, end=2)
    as_batch = graph.node("Concat", [batch, graph.constant([-1], np.int64)], axis=0)  # [B, S, *]
    as_heads = graph.constant([-1, d], np.int64)

    def tensor(name: str) -> Float:
        return weights.read(PREFIX + name)

    def norm(x: str, name: str, divisor: Float | float = 1.0) -> str:
        gamma = graph.weight(tensor(name) / divisor, "norm")
        eps = text.rms_norm_eps
        return graph.node("SimplifiedLayerNormalization", [x, gamma], epsilon=eps, axis=-1)

    def add_norm(x: str, skip: str, name: str, divisor: Float) -> tuple[str, str]:
        """norm(x + skip), and the sum itself, in one pass."""
        inputs = [x, skip, graph.weight(tensor(name) / divisor, "norm")]
        outputs = [graph.fresh("norm"), "", "", graph.fresh("residual")]
        op, eps = "SkipSimplifiedLayerNormalization", text.rms_norm_eps
        graph.nodes(op, inputs, outputs, domain=MICROSOFT, epsilon=eps)
        return outputs[0], outputs[3]

    def linears(
        y: str, names: list[str], scheme: dict[str, Scheme], factor: Float | float = 1.0
    ) -> list[str]:
        """Several products of one input, joined where the schemes allow. `factor` scales the
        columns: it gives back what the input's norm was divided by."""
        source = Activation(graph, y)
        matrices = [tensor(f"{name}.weight") * factor for name in names]
        kinds = [scheme[name.rsplit(".", 1)[1]] for name in names]
        if not fused:
            return [
                linear(source, m, k, name.rsplit(".", 1)[1])
                for m, k, name in zip(matrices, kinds, names, strict=True)
            ]
        results: list[str] = []
        for kind in dict.fromkeys(kinds):
            group = [m for m, k in zip(matrices, kinds, strict=True) if k == kind]
            joined = linear(source, np.concatenate(group), kind, "joined")
            sizes = graph.constant([m.shape[0] for m in group], np.int64)
            outs = [graph.fresh("part") for _ in group]
            if len(group) == 1:
                results.append(joined)
            else:
                results += graph.nodes("Split", [joined, sizes], outs, axis=-1)
        # Groups keep the order of first appearance; names of one kind are neighbours by design.
        return results

    loudness = Loudness(hidden_size)
    loudness.add_writer(weights.rows(f"{PREFIX}embed_tokens.weight")[:EMBEDDINGS_SEEN].T)

    def scales(name: str, scheme: dict[str, Scheme], reader: str) -> Float:
        """Of the loud channels that `reader` gets from norm `name`; only int8 rows mind them."""
        if scheme[reader].kind != "w8a8":
            return np.ones(hidden_size, np.float32)
        return loudness.scales(tensor(name))

    residual = graph.node("Reshape", [embeds, graph.constant([-1, hidden_size], np.int64)])
    scale = scales("layers.0.input_layernorm.weight", schemes[0], "q_proj")
    y = norm(residual, "layers.0.input_layernorm.weight", scale)
    for layer, scheme in enumerate(schemes):
        prefix = f"layers.{layer}"
        names = [f"{prefix}.self_attn.{n}" for n in ("q_proj", "k_proj", "v_proj")]
        q, k, v = linears(y, names, scheme, scale)
        q, k = (
            graph.node(
                "Reshape",
                [
                    norm(graph.node("Reshape", [h, as_heads]), f"{prefix}.self_attn.{n}.weight"),
                    as_batch,
                ],
            )
            for h, n in ((q, "q_norm"), (k, "k_norm"))
        )
        v = graph.node("Reshape", [v, as_batch])
        cache: list[int | str] = ["B", text.num_kv_heads, "M", d]
        past = [graph.input(f"past_{s}_{layer}", np.float32, cache) for s in ("key", "value")]
        present = [f"present_{s}_{layer}" for s in ("key", "value")]
        attended = graph.nodes(
            "GroupQueryAttention",
            [q, k, v, *past, lengths, total, cos, sin, rows],
            [graph.fresh("attended"), *present],
            domain=MICROSOFT,
            num_heads=text.num_heads,
            kv_num_heads=text.num_kv_heads,
            do_rotary=1,
        )[0]
        for name in present:
            graph.output(name, name, np.float32, cache)
        flat = graph.constant([-1, text.num_heads * d], np.int64)
        attended = graph.node("Reshape", [attended, flat])
        if layer + 1 == text.num_layers:  # from here on only the wanted rows matter
            attended = graph.node("Gather", [attended, select], axis=0)
            residual = graph.node("Gather", [residual, select], axis=0)
        x = linears(attended, [f"{prefix}.self_attn.o_proj"], scheme)[0]
        loudness.add_writer(tensor(f"{prefix}.self_attn.o_proj.weight"))
        name = f"{prefix}.post_attention_layernorm.weight"
        scale = scales(name, scheme, "gate_proj")
        y, residual = add_norm(x, residual, name, scale)

        names = [f"{prefix}.mlp.gate_proj", f"{prefix}.mlp.up_proj"]
        gate, up = linears(y, names, scheme, scale)
        gate = graph.node("QuickGelu", [gate], domain=MICROSOFT, alpha=1.0)  # SiLU
        x = linears(graph.node("Mul", [gate, up]), [f"{prefix}.mlp.down_proj"], scheme)[0]
        loudness.add_writer(tensor(f"{prefix}.mlp.down_proj.weight"))
        last = layer + 1 == text.num_layers
        if not last:
            following = f"layers.{layer + 1}.input_layernorm.weight"
            scale = scales(following, schemes[layer + 1], "q_proj")
        if layer < num_taps:
            index = graph.constant(layer, np.int64)
            features = graph.node("Gather", [deepstack, index], axis=0)  # [R, D]
            if last:
                features = graph.node("Gather", [features, select], axis=0)
            residual = graph.node("Add", [graph.node("Add", [x, residual]), features])
            if not last:
                y = norm(residual, following, scale)
        elif last:
            residual = graph.node("Add", [x, residual])
        else:
            y, residual = add_norm(x, residual, following, scale)
    graph.output(residual, "hidden", np.float32, ["L", hidden_size])


def build_head(graph: Graph, config: ModelConfig, weights: Weights, scheme: Scheme) -> None:
    """Final norm and LM head: `hidden` [L, D] → `logits` [L, vocab].

    A graph of its own, so that prefill and decode share one copy of its weights.
    """
    text = config.text
    hidden = graph.input("hidden", np.float32, ["L", text.hidden_size])
    gamma = graph.weight(weights.read(f"{PREFIX}norm.weight"), "norm")
    y = graph.node(
        "SimplifiedLayerNormalization", [hidden, gamma], epsilon=text.rms_norm_eps, axis=-1
    )
    name = f"{PREFIX}embed_tokens.weight" if text.tie_word_embeddings else "lm_head.weight"
    logits = linear(Activation(graph, y), weights.rows(name), scheme, "head")
    graph.output(logits, "logits", np.float32, ["L", text.vocab_size])


MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def uniform_schemes(num_layers: int, scheme: Scheme) -> list[dict[str, Scheme]]:
    """The same scheme for each matrix of each layer."""
    return [dict.fromkeys(MATRICES, scheme) for _ in range(num_layers)]


def decode_schemes(num_layers: int, recipe: Recipe) -> list[dict[str, Scheme]]:
    """The recipe's schemes per layer and matrix, with the sensitive ones where they belong."""
    schemes = uniform_schemes(num_layers, recipe.decode)
    edge = max(1, num_layers // 8)
    for layer, scheme in enumerate(schemes):
        scheme["v_proj"] = recipe.sensitive
        if layer < edge or layer >= num_layers - edge:
            scheme["down_proj"] = recipe.sensitive
    return schemes
