"""The decoder as ONNX graphs: prefill, decode, and the LM head beside them.

Reference: transformers `Qwen3VLTextModel`. Shapes: B sequences, S new tokens each, R = B·S rows,
D hidden, H query heads, K key/value heads, M the cache's capacity, d = head_dim.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qwink.export.graph import MICROSOFT, NATIVE, Graph
from qwink.export.linear import Activation, Norm, gated, linear, native_attributes, normalize
from qwink.export.recipe import Recipe, Scheme
from qwink.export.smooth import Float, Loudness
from qwink.export.stream import Stream
from qwink.model.config import ModelConfig
from qwink.model.weights import Weights
from qwink.native import Kernels

PREFIX = "model.language_model."
EMBEDDINGS_SEEN = 4096  # enough of them to tell a loud channel


def cache_type(kernels: Kernels) -> type[np.floating[Any]]:
    """Of keys and values. Half precision where all attention to the cache is ours."""
    return np.float16 if kernels == "amx" else np.float32


def text_kernels(recipe: Recipe, kernels: Kernels) -> Kernels:
    """Of the decoder layers, in an artifact of `kernels`."""
    # Without tiles our attention takes single tokens only, and 4-bit graphs for both phases.
    one_for_both = recipe.shares_text_weights and recipe.decode.kind == "nbits"
    return "onnxruntime" if one_for_both and kernels == "vnni" else kernels


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
    each layer i `past_key_i`, `past_value_i` [B, K, M, d] of `cache_type`.
    With our operators also `prompt` int32, 1 for tokens of a prompt and 0 for a new token each.
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

    if graph.native:
        graph.prompt = graph.input("prompt", np.int32, [])

    batch = graph.node("Shape", [embeds], start=0, end=2)
    as_batch = graph.node("Concat", [batch, graph.constant([-1], np.int64)], axis=0)  # [B, S, *]
    as_heads = graph.constant([-1, d], np.int64)

    def tensor(name: str) -> Float:
        return weights.read(PREFIX + name)

    def norm(name: str, divisor: Float | float = 1.0) -> Norm:
        return Norm(tensor(name) / divisor, text.rms_norm_eps)

    def linears(
        source: Activation,
        names: list[str],
        scheme: dict[str, Scheme],
        factor: Float,
        *,
        panels: bool,
    ) -> list[str]:
        """Several products of one input, joined where the schemes allow. `factor` scales the
        columns: it gives back what the input's norm was divided by."""
        matrices = [tensor(f"{name}.weight") * factor for name in names]
        kinds = [scheme[name.rsplit(".", 1)[1]] for name in names]
        if not fused:
            return [
                linear(source, m, k, name.rsplit(".", 1)[1], panels=panels)
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

    def attend(heads: list[str], norms: list[Norm], past: list[str], present: list[str]) -> str:
        """Queries, keys and values → [R, H · d], or in panels; the cache grows."""
        if ours:
            gammas = [n.weights(graph)[0] for n in norms]
            inputs = [*heads, *gammas, cos, sin, rows, lengths, *past, graph.prompt]
            operator = "TextAttentionHalf" if dtype == np.float16 else "TextAttention"
            outputs = [graph.fresh("attended"), *present, graph.fresh("scratch")]
            attributes = native_attributes(
                graph,
                text.num_heads * d,
                norm=norms[0],
                panels=tiles,
                num_heads=text.num_heads,
                num_kv_heads=text.num_kv_heads,
            )
            return graph.nodes(operator, inputs, outputs, domain=NATIVE, **attributes)[0]
        q, k = (
            normalize(graph, graph.node("Reshape", [head, as_heads]), n)
            for head, n in zip(heads, norms, strict=False)
        )
        q, k, v = (graph.node("Reshape", [head, as_batch]) for head in (q, k, heads[2]))
        attended = graph.nodes(
            "GroupQueryAttention",
            [q, k, v, *past, lengths, total, cos, sin, rows],
            [graph.fresh("attended"), *present],
            domain=MICROSOFT,
            num_heads=text.num_heads,
            kv_num_heads=text.num_kv_heads,
            do_rotary=1,
        )[0]
        flat = graph.constant([-1, text.num_heads * d], np.int64)
        return graph.node("Reshape", [attended, flat])

    loudness = Loudness(hidden_size)
    loudness.add_writer(weights.rows(f"{PREFIX}embed_tokens.weight")[:EMBEDDINGS_SEEN].T)

    def scales(name: str, scheme: dict[str, Scheme], reader: str) -> Float:
        """Of the loud channels that `reader` gets from norm `name`; only int8 rows mind them."""
        if scheme[reader].kind != "w8a8":
            return np.ones(hidden_size, np.float32)
        return loudness.scales(tensor(name))

    as_rows = graph.constant([-1, hidden_size], np.int64)
    stream = Stream(graph, graph.node("Reshape", [embeds, as_rows]), hidden_size, panels=not fused)
    # Our attention: over tiles for prompts, for single tokens on any processor that runs it.
    tiles = graph.kernels == "amx" and stream.panels
    ours = tiles or (graph.native and fused)
    dtype = cache_type(graph.kernels)
    for layer, scheme in enumerate(schemes):
        prefix = f"layers.{layer}"
        last = layer + 1 == text.num_layers
        name = f"{prefix}.input_layernorm.weight"
        scale = scales(name, scheme, "q_proj")
        names = [f"{prefix}.self_attn.{n}" for n in ("q_proj", "k_proj", "v_proj")]
        source = stream.normalized(norm(name, scale))
        heads = linears(source, names, scheme, scale, panels=tiles)
        cache: list[int | str] = ["B", text.num_kv_heads, "M", d]
        past = [graph.input(f"past_{s}_{layer}", dtype, cache) for s in ("key", "value")]
        present = [f"present_{s}_{layer}" for s in ("key", "value")]
        norms = [norm(f"{prefix}.self_attn.{n}_norm.weight") for n in "qk"]
        attended = attend(heads, norms, past, present)
        for present_name in present:
            graph.output(present_name, present_name, dtype, cache)
        if last:  # from here on only the wanted rows matter
            attended = graph.node("Gather", [attended, select], axis=1 if tiles else 0)
            stream.select(select)
        weight = tensor(f"{prefix}.self_attn.o_proj.weight")
        source = Activation(graph, attended, panels=tiles)
        stream.add_product(source, weight, scheme["o_proj"], "o_proj")
        loudness.add_writer(weight)

        name = f"{prefix}.post_attention_layernorm.weight"
        scale = scales(name, scheme, "gate_proj")
        source = stream.normalized(norm(name, scale))
        gate, up = (tensor(f"{prefix}.mlp.{n}_proj.weight") * scale for n in ("gate", "up"))
        panels = stream.panels
        x = gated(source, gate, up, scheme["gate_proj"], fused=fused, panels=panels)
        weight = tensor(f"{prefix}.mlp.down_proj.weight")
        source = Activation(graph, x, panels=panels)
        stream.add_product(source, weight, scheme["down_proj"], "down_proj")
        loudness.add_writer(weight)
        if layer < num_taps:
            index = graph.constant(layer, np.int64)
            features = graph.node("Gather", [deepstack, index], axis=0)  # [R, D]
            if last:
                features = graph.node("Gather", [features, select], axis=0)
            stream.add(features)
    graph.output(stream.rows(), "hidden", np.float32, ["L", hidden_size])


def build_head(graph: Graph, config: ModelConfig, weights: Weights, scheme: Scheme) -> None:
    """Final norm and LM head: `hidden` [L, D] → `logits` [L, vocab].

    A graph of its own, so that prefill and decode share one copy of its weights.
    """
    text = config.text
    hidden = graph.input("hidden", np.float32, ["L", text.hidden_size])
    norm = Norm(weights.read(f"{PREFIX}norm.weight"), text.rms_norm_eps)
    name = f"{PREFIX}embed_tokens.weight" if text.tie_word_embeddings else "lm_head.weight"
    logits = linear(Activation(graph, hidden, norm), weights.rows(name), scheme, "head")
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
