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
    """Tokens to run: S for each of B slots, the shorter rows padded.

    `places` say where in its slot each token goes; it attends to all up to there.
    `neighbours`: the first slot, if `slots` counts up from there.
    """

    slots: Tensor  # [B]
    embeds: Tensor  # [B, S, D]
    places: Tensor  # [B, S]; the cache's scratch row for padding
    cos: Tensor  # float32 [B, S, head_dim / 2]
    sin: Tensor
    deepstack: Tensor | None = None  # [taps, B, S, D], zero where there is no image
    neighbours: int | None = None


def run_layers(modules: Modules, cache: TorchCache, total: int, tokens: Tokens) -> Tensor:
    """Run tokens through all layers; their keys and values go to the cache.

    `total` is how much of each slot is looked at: at least up to the last token's place.
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
        query = rotate(query, cos, sin)
        x = attend(query, *(_slots(whole, tokens, total) for whole in (keys, values)), mask)
        hidden = hidden + attention.o_proj(x)
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        if tokens.deepstack is not None and index < len(tokens.deepstack):
            hidden = hidden + tokens.deepstack[index]
    return hidden


def _slots(whole: Tensor, tokens: Tokens, total: int) -> Tensor:
    """The first `total` rows of the tokens' slots: [B, KV heads, total, head_dim].

    Slots that are not neighbours are copied.
    """
    rows = whole[:, :, :total]
    if tokens.neighbours is None:
        return rows.index_select(0, tokens.slots)
    return rows[tokens.neighbours : tokens.neighbours + len(tokens.slots)]


def run_head(modules: Modules, hidden: Tensor) -> Tensor:
    """Final norm and LM head: [L, D] → float32 [L, vocab]."""
    logits: Tensor = modules.head(modules.norm(hidden))
    return logits.float()
