"""The decoder's attention: causal, over keys and values of earlier tokens in a cache.

Shapes: R new tokens of B sequences, L wanted ones, H query heads, K key/value heads, M the cache's
capacity, d = head_dim. Past and present of a layer are meant to be bound to the same memory: the
operators then write the new rows in place.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from qwink.export.graph import MICROSOFT, NATIVE, Graph
from qwink.export.linear import Norm, native_attributes, normalize
from qwink.model.config import TextConfig
from qwink.native import cache_type


class TextAttention(Protocol):
    """Declares where tokens lie as inputs of the graph, and computes the attention of layers."""

    def attend(self, layer: int, heads: list[str], norms: list[Norm]) -> str:
        """Queries, keys and values [R, heads · d], the norms of queries and keys → [R, H · d].

        Adds `past_key_i`, `past_value_i` to the graph's inputs and `present_key_i`,
        `present_value_i` to its outputs.
        """


class RaggedAttention:
    """Our operator: any number of new tokens for each sequence, in any slots of the cache.

    Inputs: `rows` int64 [R], each token's row in `cos` and `sin` [N, d / 2]; `starts` int32
    [B + 1], each sequence's first token; `lengths` int32 [B], each sequence's tokens in the cache
    after this step; `slots` int32 [B], where each sequence lies in the cache [slots, K, M, d];
    `prompt` int32: 0 for new tokens of answers, 1 for a chunk of a prompt, 2 for a chunk that
    continues the chunk of the run before, with its slot not changed in between; 4 more for the
    last chunk of a prompt, after which the operator keeps nothing for a continuation.

    `panels`: values before and after attention lie in panels instead of rows.
    """

    def __init__(self, graph: Graph, text: TextConfig, *, panels: bool) -> None:
        self._graph, self._text, self._panels = graph, text, panels
        half = text.head_dim // 2
        self._where = [
            graph.input("cos", np.float32, ["N", half]),
            graph.input("sin", np.float32, ["N", half]),
            graph.input("rows", np.int64, ["R"]),
            graph.input("starts", np.int32, ["starts"]),
            graph.input("lengths", np.int32, ["B"]),
            graph.input("slots", np.int32, ["B"]),
        ]
        graph.prompt = graph.input("prompt", np.int32, [])

    def attend(self, layer: int, heads: list[str], norms: list[Norm]) -> str:
        """As `TextAttention.attend`; with `panels`, all of them in panels."""
        graph, text = self._graph, self._text
        past, present = _cache(graph, text, layer, "slots")
        gammas = [norm.weights(graph)[0] for norm in norms]
        attributes = native_attributes(
            graph,
            text.num_heads * text.head_dim,
            norm=norms[0],
            panels=self._panels,
            num_heads=text.num_heads,
            num_kv_heads=text.num_kv_heads,
        )
        return graph.nodes(
            "TextAttention",
            [*heads, *gammas, *self._where, *past, graph.prompt],
            [graph.fresh("attended"), *present, graph.fresh("scratch")],
            domain=NATIVE,
            **attributes,
        )[0]


class BatchAttention:
    """ONNX Runtime's operator: S new tokens for each of B sequences, R = B · S.

    Inputs: `rows` int64 [B, S], each token's row in `cos` and `sin` [N, d / 2]; `lengths` int32
    [B], each sequence's tokens in the cache after this step, less one; `total` int32, the largest
    number of tokens in the cache after this step. The cache [B, K, M, d] holds these sequences
    only.
    """

    def __init__(self, graph: Graph, text: TextConfig, embeds: str) -> None:
        """`embeds` [B, S, D] gives B and S."""
        self._graph, self._text = graph, text
        half = text.head_dim // 2
        self._where = [
            graph.input("lengths", np.int32, ["B"]),
            graph.input("total", np.int32, []),
            graph.input("cos", np.float32, ["N", half]),
            graph.input("sin", np.float32, ["N", half]),
            graph.input("rows", np.int64, ["B", "S"]),
        ]
        batch = graph.node("Shape", [embeds], start=0, end=2)
        rest = graph.constant([-1], np.int64)
        self._as_batch = graph.node("Concat", [batch, rest], axis=0)  # [B, S, *]

    def attend(self, layer: int, heads: list[str], norms: list[Norm]) -> str:
        """As `TextAttention.attend`."""
        graph, text = self._graph, self._text
        past, present = _cache(graph, text, layer, "B")
        as_heads = graph.constant([-1, text.head_dim], np.int64)
        q, k = (
            normalize(graph, graph.node("Reshape", [head, as_heads]), norm)
            for head, norm in zip(heads, norms, strict=False)
        )
        q, k, v = (graph.node("Reshape", [head, self._as_batch]) for head in (q, k, heads[2]))
        attended = graph.nodes(
            "GroupQueryAttention",
            [q, k, v, *past, *self._where],
            [graph.fresh("attended"), *present],
            domain=MICROSOFT,
            num_heads=text.num_heads,
            kv_num_heads=text.num_kv_heads,
            do_rotary=1,
        )[0]
        flat = graph.constant([-1, text.num_heads * text.head_dim], np.int64)
        return graph.node("Reshape", [attended, flat])


def _cache(
    graph: Graph, text: TextConfig, layer: int, sequences: str
) -> tuple[list[str], list[str]]:
    """A layer's keys and values: inputs for the past, outputs for the present."""
    dtype = cache_type(graph.target.layout)
    shape: list[int | str] = [sequences, text.num_kv_heads, "M", text.head_dim]
    past = [graph.input(f"past_{name}_{layer}", dtype, shape) for name in ("key", "value")]
    present = [f"present_{name}_{layer}" for name in ("key", "value")]
    for name in present:
        graph.output(name, name, dtype, shape)
    return past, present
