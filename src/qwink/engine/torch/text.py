"""The text model over the slots of a cache; prefill and decode are the same pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from qwink.engine.torch.attention import attend, rotate
from qwink.engine.torch.cache import TorchCache
from qwink.engine.torch.weights import Modules


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """New tokens: S for each of B slots, the shorter rows padded.

    `places` are the tokens' rows in their slots; each token attends to all rows up to there.
    `window` is `slots` as a slice, if they are neighbours.
    """

    slots: Tensor  # [B]
    embeds: Tensor  # [B, S, D]
    places: Tensor  # [B, S]; the cache's scratch row for padding
    cos: Tensor  # float32 [B, S, head_dim / 2]
    sin: Tensor
    deepstack: Tensor | None = None  # [taps, B, S, D], zero where there is no image
    window: slice | None = None


def run_layers(modules: Modules, cache: TorchCache, total: int, tokens: Tokens) -> Tensor:
    """Run tokens through all layers; their keys and values go to the cache.

    `total` is how many rows of each slot are read: at least up to the last token's place.
    Returns hidden states [B, S, D], before the final norm.
    """
    hidden, places = tokens.embeds, tokens.places
    batch, length, _ = hidden.shape
    cos, sin = tokens.cos[:, None], tokens.sin[:, None]  # the same for all heads
    slots = tokens.slots[:, None]
    columns = torch.arange(total, device=hidden.device)
    later = columns > places[:, None, :, None]  # [B, 1, S, T]
    mask = torch.zeros_like(later, dtype=hidden.dtype)
    mask = mask.masked_fill(later, float("-inf"))
    for index, layer in enumerate(modules.layers):
        attention = layer.self_attn
        shape = (batch, length, -1, attention.head_dim)
        x = layer.input_layernorm(hidden)
        query = attention.q_norm(attention.q_proj(x).view(shape)).transpose(1, 2)
        key = attention.k_norm(attention.k_proj(x).view(shape)).transpose(1, 2)
        value = attention.v_proj(x).view(shape)  # [B, S, KV heads, d]
        keys, values = cache.layer(index)
        keys[slots, :, places] = rotate(key, cos, sin).transpose(1, 2)
        values[slots, :, places] = value
        keys, values = _rows(keys, total, tokens), _rows(values, total, tokens)
        x = attend(rotate(query, cos, sin), keys, values, mask)
        hidden = hidden + attention.o_proj(x)
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        if tokens.deepstack is not None and index < len(tokens.deepstack):
            hidden = hidden + tokens.deepstack[index]
    return hidden


def run_head(modules: Modules, hidden: Tensor) -> Tensor:
    """Final norm and LM head: [L, D] → float32 [L, vocab]."""
    logits: Tensor = modules.head(modules.norm(hidden))
    return logits.float()


def _rows(stored: Tensor, total: int, tokens: Tokens) -> Tensor:
    """The first rows of the tokens' slots [B, KV heads, total, d]: a view of neighbours, or a
    copy.
    """
    rows = stored[:, :, :total]
    if tokens.window is not None:
        return rows[tokens.window]
    return rows.index_select(0, tokens.slots)
