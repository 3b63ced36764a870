"""The decoder as ONNX graphs: prefill, decode, and the LM head beside them.

Reference: transformers `Qwen3VLTextModel`. Shapes: R new tokens of B sequences, L wanted ones, D
hidden, d = head_dim. ONNX Runtime's attention takes S tokens of each sequence, R = B · S.
"""

from __future__ import annotations

import numpy as np

from qwink.export.attention import BatchAttention, RaggedAttention, TextAttention
from qwink.export.graph import Graph
from qwink.export.linear import Activation, Norm, gated, linear
from qwink.export.recipe import Recipe, Scheme
from qwink.export.smooth import ChannelSizes, Float
from qwink.export.stream import Stream
from qwink.model.config import ModelConfig
from qwink.model.weights import Weights

PREFIX = "model.language_model."
EMBEDDINGS_READ = 4096  # enough of them to find outlier channels


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

    Inputs: `embeds` float32 [R, D], or [B, S, D] with ONNX Runtime's operators; `deepstack` float32
    [taps, R, D] if `with_deepstack`, zero where there is no image; `select` int64 [L], the tokens
    whose hidden states are wanted; and the inputs of `RaggedAttention` or `BatchAttention`.
    Outputs: `hidden` [L, D] and the keys and values.

    `fused` joins q/k/v and gate/up into one product each: faster for few tokens, slower for many,
    where splitting the result costs more than it saves.
    """
    text, hidden_size = config.text, config.text.hidden_size
    num_taps = len(config.vision.deepstack_layers) if with_deepstack else 0
    if num_taps:
        deepstack = graph.input("deepstack", np.float32, [num_taps, "R", hidden_size])
    select = graph.input("select", np.int64, ["L"])
    attention: TextAttention
    if graph.native:
        embeds = graph.input("embeds", np.float32, ["R", hidden_size])
        stream = Stream(graph, embeds, hidden_size, panels=not fused)
        attention = RaggedAttention(graph, text, panels=stream.panels)
    else:
        embeds = graph.input("embeds", np.float32, ["B", "S", hidden_size])
        as_rows = graph.constant([-1, hidden_size], np.int64)
        stream = Stream(graph, graph.node("Reshape", [embeds, as_rows]), hidden_size)
        attention = BatchAttention(graph, text, embeds)
    panels = stream.panels

    def tensor(name: str) -> Float:
        return weights.read(PREFIX + name)

    def norm(name: str, divisor: Float | float = 1.0) -> Norm:
        return Norm(tensor(name) / divisor, text.rms_norm_eps)

    sizes = ChannelSizes(hidden_size)
    sizes.add_writer(weights.rows(f"{PREFIX}embed_tokens.weight")[:EMBEDDINGS_READ].T)

    def smoothing(name: str, scheme: Scheme) -> Float:
        """Factors between the norm `name` and a matrix that reads it: only for int8 rows."""
        if scheme.kind != "w8a8":
            return np.ones(hidden_size, np.float32)
        return sizes.smoothing(tensor(name))

    for layer, scheme in enumerate(schemes):
        prefix = f"layers.{layer}"
        last = layer + 1 == text.num_layers
        name = f"{prefix}.input_layernorm.weight"
        factors = smoothing(name, scheme["q_proj"])
        names = ("q_proj", "k_proj", "v_proj")
        matrices = [tensor(f"{prefix}.self_attn.{n}.weight") * factors for n in names]
        kinds = [scheme[n] for n in names]
        source = stream.normalized(norm(name, factors))
        if fused:
            heads = joined(source, matrices, kinds)
        else:
            heads = [
                linear(source, matrix, kind, n, panels=panels)
                for matrix, kind, n in zip(matrices, kinds, names, strict=True)
            ]
        norms = [norm(f"{prefix}.self_attn.{n}_norm.weight") for n in "qk"]
        attended = attention.attend(layer, heads, norms)
        if last:  # the remaining operations need the wanted rows only
            attended = graph.node("Gather", [attended, select], axis=1 if panels else 0)
            stream.select(select)
        weight = tensor(f"{prefix}.self_attn.o_proj.weight")
        source = Activation(graph, attended, panels=panels)
        stream.add_product(source, weight, scheme["o_proj"], "o_proj")
        sizes.add_writer(weight)

        name = f"{prefix}.post_attention_layernorm.weight"
        factors = smoothing(name, scheme["gate_proj"])
        source = stream.normalized(norm(name, factors))
        assert scheme["gate_proj"] == scheme["up_proj"], "SwiGLU is computed as one product"
        gate, up = (tensor(f"{prefix}.mlp.{n}_proj.weight") * factors for n in ("gate", "up"))
        x = gated(source, gate, up, scheme["gate_proj"], fused=fused, panels=panels)
        weight = tensor(f"{prefix}.mlp.down_proj.weight")
        source = Activation(graph, x, panels=panels)
        stream.add_product(source, weight, scheme["down_proj"], "down_proj")
        sizes.add_writer(weight)
        if layer < num_taps:
            index = graph.constant(layer, np.int64)
            features = graph.node("Gather", [deepstack, index], axis=0)  # [R, D]
            if last:
                features = graph.node("Gather", [features, select], axis=0)
            stream.add(features)
    graph.output(stream.rows(), "hidden", np.float32, ["L", hidden_size])


def joined(source: Activation, matrices: list[Float], schemes: list[Scheme]) -> list[str]:
    """Products of one input, in the order of `matrices`; matrices of equal schemes share one."""
    graph = source.graph
    results = [""] * len(matrices)
    for scheme in dict.fromkeys(schemes):
        members = [index for index, each in enumerate(schemes) if each == scheme]
        group = [matrices[index] for index in members]
        parts = [linear(source, np.concatenate(group), scheme, "joined")]
        if len(group) > 1:
            widths = graph.constant([matrix.shape[0] for matrix in group], np.int64)
            names = [graph.fresh("part") for _ in group]
            parts = graph.nodes("Split", [parts[0], widths], names, axis=-1)
        for index, part in zip(members, parts, strict=True):
            results[index] = part
    return results


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
