"""Rotary positions and attention, for the vision encoder and the text model."""

from __future__ import annotations

from torch import Tensor, cat
from torch.nn.functional import scaled_dot_product_attention


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [..., head_dim] by tables [..., head_dim / 2], computed in float32."""
    first, second = x.float().chunk(2, dim=-1)
    turned = cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """query [B, heads, S, d]; keys, values [B, KV heads, T, d]; mask [B, 1, S, T], added.

    Returns [B, S, heads * d]. The query heads that share a KV head become further rows of one
    head: so the kernel needs no support for grouped heads, and keys need not be repeated.
    """
    batch, num_heads, length, head_dim = query.shape
    num_kv_heads, total = keys.shape[1], keys.shape[2]
    group = num_heads // num_kv_heads
    rows = query.reshape(batch, num_kv_heads, group * length, head_dim)
    mask = mask.expand(batch, group, length, total).reshape(batch, 1, group * length, total)
    out = scaled_dot_product_attention(
        rows, keys, values, mask.expand(-1, num_kv_heads, -1, -1)
    )  # [B, KV heads, group * S, d]
    out = out.reshape(batch, num_heads, length, head_dim)
    return out.transpose(1, 2).reshape(batch, length, -1)
