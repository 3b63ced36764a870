"""Qwen3-VL for training in batches, with the parameter names of the published checkpoints.

All pictures of a batch share one patch grid, so attention is one call per layer.
Shapes use B pictures, N patches, V = N/4 visual tokens, L tokens, D text hidden size.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


@dataclass(frozen=True)
class NanoConfig:
    """Sizes of the network."""

    vocab_size: int = 416
    hidden_size: int = 192
    intermediate_size: int = 576
    layers: int = 4
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    rope_theta: float = 1000.0
    mrope_section: tuple[int, int, int] = (6, 5, 5)
    vision_depth: int = 6
    vision_hidden: int = 128
    vision_heads: int = 4
    vision_intermediate: int = 512
    position_embeddings: int = 256
    deepstack: tuple[int, ...] = (1, 3)
    patch: int = 16
    merge: int = 2


class Features(NamedTuple):
    """Visual tokens (B, V, D) and one DeepStack feature (B, V, D) per tap."""

    tokens: Tensor
    deepstack: tuple[Tensor, ...]


def merge_order(grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Row and column of each patch (N,), in blocks of 2x2 as the merger reads them."""
    height, width = grid
    rows = torch.arange(height)[:, None].expand(height, width)
    columns = torch.arange(width)[None].expand(height, width)

    def blocks(x: Tensor) -> Tensor:
        return x.reshape(height // 2, 2, width // 2, 2).permute(0, 2, 1, 3).reshape(-1)

    return blocks(rows), blocks(columns)


@lru_cache(maxsize=256)
def interpolation(grid: tuple[int, int], side: int) -> Tensor:
    """Bilinear weights (N, side*side) from the learned positions to one grid."""

    def axis(length: int) -> Tensor:
        at = torch.linspace(0, side - 1, length)
        low = at.long().clamp(max=side - 1)
        high = (low + 1).clamp(max=side - 1)
        part = at - low
        one = F.one_hot(low, side) * (1 - part)[:, None]
        return one + F.one_hot(high, side) * part[:, None]

    rows, columns = merge_order(grid)
    return torch.einsum("nr,nc->nrc", axis(grid[0])[rows], axis(grid[1])[columns]).flatten(1)


@lru_cache(maxsize=256)
def vision_angles(grid: tuple[int, int], head_dim: int) -> Tensor:
    """Rotary angles (N, head_dim/2): first half for rows, second half for columns."""
    half = head_dim // 2
    inverse = 10000.0 ** -(torch.arange(0, half, 2).float() / half)
    rows, columns = merge_order(grid)
    return torch.cat([rows[:, None] * inverse, columns[:, None] * inverse], -1)


def text_angles(positions: Tensor, config: NanoConfig) -> Tensor:
    """Interleaved M-RoPE angles (B, L, head_dim/2) of positions (3, B, L)."""
    half = config.head_dim // 2
    inverse = config.rope_theta ** -(torch.arange(half, device=positions.device).float() / half)
    axis = torch.zeros(half, dtype=torch.long)
    for dim in (1, 2):
        axis[dim : config.mrope_section[dim] * 3 : 3] = dim
    picked = positions.permute(1, 2, 0)[..., axis.to(positions.device)]
    return picked.float() * inverse


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of the last axis of x (..., S, head_dim)."""
    a, b = x.chunk(2, -1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention over (B, heads, S, head_dim), without PyTorch's fused kernel.

    The backward pass of the fused CPU kernel is several times slower at these lengths.
    """
    batch, heads, length, dim = q.shape
    mask = torch.zeros(length, length, dtype=q.dtype, device=q.device)
    if causal:
        mask = mask.masked_fill(torch.ones_like(mask, dtype=torch.bool).triu(1), float("-inf"))
    scores = torch.baddbmm(mask, q.flatten(0, 1), k.flatten(0, 1).mT, alpha=dim**-0.5)
    out = scores.softmax(-1, dtype=scores.dtype) @ v.flatten(0, 1)
    return out.view(batch, heads, length, dim)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """SiLU of the gate times `up`."""
    return F.silu(gate) * up


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * self.weight).to(x.dtype)


class VisionAttention(nn.Module):
    """Full attention over one picture's patches (B, N, hidden)."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.heads = config.vision_heads
        self.qkv = nn.Linear(config.vision_hidden, 3 * config.vision_hidden)
        self.proj = nn.Linear(config.vision_hidden, config.vision_hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, size = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = attend(rotate(q, cos, sin), rotate(k, cos, sin), v, causal=False)
        out: Tensor = self.proj(y.transpose(1, 2).reshape(batch, length, size))
        return out


class VisionMLP(nn.Module):
    """Two linear layers with a tanh-GELU between them."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(config.vision_hidden, config.vision_intermediate)
        self.linear_fc2 = nn.Linear(config.vision_intermediate, config.vision_hidden)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear_fc2(F.gelu(self.linear_fc1(x), approximate="tanh"))
        return out


class VisionBlock(nn.Module):
    """One pre-norm layer of the vision tower."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.vision_hidden, eps=1e-6)
        self.norm2 = nn.LayerNorm(config.vision_hidden, eps=1e-6)
        self.attn = VisionAttention(config)
        self.mlp = VisionMLP(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class Merger(nn.Module):
    """Four neighbouring patches (B, N, hidden) to one visual token (B, N/4, D)."""

    def __init__(self, config: NanoConfig, after_shuffle: bool) -> None:
        super().__init__()
        self.width = config.vision_hidden * config.merge**2
        self.after_shuffle = after_shuffle
        self.norm = nn.LayerNorm(self.width if after_shuffle else config.vision_hidden, eps=1e-6)
        self.linear_fc1 = nn.Linear(self.width, self.width)
        self.linear_fc2 = nn.Linear(self.width, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        shape = (x.shape[0], -1, self.width)
        x = self.norm(x.view(shape)) if self.after_shuffle else self.norm(x).view(shape)
        out: Tensor = self.linear_fc2(F.gelu(self.linear_fc1(x)))
        return out


class PatchEmbed(nn.Module):
    """Embeds patches. Both temporal frames are the same picture, so their weights are added."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        size = (2, config.patch, config.patch)
        self.proj = nn.Conv3d(3, config.vision_hidden, size, stride=size)

    def forward(self, patches: Tensor) -> Tensor:
        weight = self.proj.weight.sum(2).flatten(1)
        return F.linear(patches, weight, self.proj.bias)


class VisionTower(nn.Module):
    """Patches (B, N, 768) of one grid to visual tokens and DeepStack features."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.pos_embed = nn.Embedding(config.position_embeddings, config.vision_hidden)
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.vision_depth))
        self.merger = Merger(config, after_shuffle=False)
        self.deepstack_merger_list = nn.ModuleList(
            Merger(config, after_shuffle=True) for _ in config.deepstack
        )

    def forward(self, patches: Tensor, blend: Tensor, cos: Tensor, sin: Tensor) -> Features:
        x = self.patch_embed(patches.float() / 127.5 - 1)
        x = x + (blend @ self.pos_embed.weight).to(x.dtype)
        taps: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            x = block(x, cos, sin)
            if index in self.config.deepstack:
                taps.append(self.deepstack_merger_list[len(taps)](x))
        return Features(self.merger(x), tuple(taps))


class TextAttention(nn.Module):
    """Causal grouped-query attention with per-head norms (B, L, D)."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        size, dim = config.hidden_size, config.head_dim
        self.dim, self.groups = dim, config.heads // config.kv_heads
        self.q_proj = nn.Linear(size, config.heads * dim, bias=False)
        self.k_proj = nn.Linear(size, config.kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(size, config.kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(config.heads * dim, size, bias=False)
        self.q_norm, self.k_norm = RMSNorm(dim), RMSNorm(dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        shape = (batch, length, -1, self.dim)
        q = rotate(self.q_norm(self.q_proj(x).view(shape)).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(self.k_proj(x).view(shape)).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        k, v = (t.repeat_interleave(self.groups, 1) for t in (k, v))
        y = attend(q, k, v, causal=True)
        out: Tensor = self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))
        return out


class TextMLP(nn.Module):
    """The SwiGLU MLP of a decoder layer."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        size, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))
        return out


class TextLayer(nn.Module):
    """One pre-norm decoder layer."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.self_attn = TextAttention(config)
        self.mlp = TextMLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size)
        self.post_attention_layernorm = RMSNorm(config.hidden_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class TextModel(nn.Module):
    """The decoder; DeepStack feature i is added after layer i at the picture's positions."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(TextLayer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size)

    def forward(
        self, ids: Tensor, slots: Tensor, features: Features, cos: Tensor, sin: Tensor
    ) -> Tensor:
        """ids (B, L), slots (B, L): index of the visual token there, or -1."""
        last = features.tokens.shape[1]
        index = torch.where(slots < 0, last, slots)[..., None]
        index = index.expand(-1, -1, features.tokens.shape[-1])

        def spread(x: Tensor) -> Tensor:
            return F.pad(x, (0, 0, 0, 1)).gather(1, index)

        x = self.embed_tokens(ids).to(features.tokens.dtype)
        x = torch.where((slots >= 0)[..., None], spread(features.tokens), x)
        for number, layer in enumerate(self.layers):
            x = layer(x, cos, sin)
            if number < len(features.deepstack):
                x = x + spread(features.deepstack[number])
        out: Tensor = self.norm(x)
        return out


class Backbone(nn.Module):
    """Vision tower and text model, under their published names."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.visual = VisionTower(config)
        self.language_model = TextModel(config)


class Nano(nn.Module):
    """The whole model; its state_dict is the published checkpoint (tied embeddings)."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Backbone(config)
        nn.init.normal_(self.model.language_model.embed_tokens.weight, std=0.02)
        nn.init.normal_(self.model.visual.pos_embed.weight, std=0.02)

    def encode_images(self, patches: Tensor, grid: tuple[int, int]) -> Features:
        """Visual features of patches (B, N, 768), values 0 to 255, in merge order."""
        config, device = self.config, patches.device
        side = round(config.position_embeddings**0.5)
        angles = vision_angles(grid, config.vision_hidden // config.vision_heads).to(device)
        blend = interpolation(grid, side).to(device)
        out: Features = self.model.visual(patches, blend, angles.cos(), angles.sin())
        return out

    def hidden_states(
        self, ids: Tensor, positions: Tensor, slots: Tensor, features: Features
    ) -> Tensor:
        """The last hidden states (B, L, D). positions is (3, B, L)."""
        angles = text_angles(positions, self.config)[:, None]
        out: Tensor = self.model.language_model(ids, slots, features, angles.cos(), angles.sin())
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores (..., vocab) of hidden states (..., D)."""
        return F.linear(hidden, self.model.language_model.embed_tokens.weight)


class Teacher(nn.Module):
    """Heads for training only: they predict the symbols whose centre is in each 32x32 cell."""

    def __init__(self, config: NanoConfig, slots: int, symbols: int) -> None:
        super().__init__()
        self.symbols = symbols
        self.heads = nn.ModuleList(nn.Linear(config.hidden_size, slots * symbols) for _ in range(2))

    def forward(self, features: Features, cells: Tensor) -> Tensor:
        """The loss for cells (B, V, slots). Symbol 0 is an empty slot and has weight 0.1."""
        weight = torch.ones(self.symbols, device=cells.device)
        weight[0] = 0.1
        losses = [
            F.cross_entropy(head(x).float().view(-1, self.symbols), cells.reshape(-1), weight)
            for head, x in zip(self.heads, (features.tokens, features.deepstack[-1]), strict=True)
        ]
        return losses[0] + 0.5 * losses[1]
