"""The vision encoder over several images of any sizes at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention

from qwink.engine.torch.attention import rotate
from qwink.engine.torch.transfer import to_device
from qwink.engine.torch.weights import Modules
from qwink.model.config import VisionConfig
from qwink.model.rope import interpolate_positions, vision_rope
from qwink.types import Grid, Patches

MAX_KNOWN_GRIDS = 32  # position tables kept on the device; 3 MB each for 448×448 px, 2B model


class VisionEncoder:
    """Computes image tokens and DeepStack features from pixels."""

    def __init__(
        self, modules: Modules, config: VisionConfig, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._modules, self._config = modules, config
        self._device, self._dtype = device, dtype
        self._tables = lru_cache(MAX_KNOWN_GRIDS)(self._make_tables)

    def encode(self, images: Sequence[Patches]) -> Tensor:
        """Embeds, then DeepStack features: [1 + taps, V, D]; the images' tokens in order."""
        visual, config = self._modules.visual, self._config
        frames = [
            Grid(1, image.grid.h, image.grid.w) for image in images for _ in range(image.grid.t)
        ]
        tables = [self._tables(frame) for frame in frames]
        positions, cos, sin = (torch.cat(parts) for parts in zip(*tables, strict=True))
        lengths = [frame.num_patches for frame in frames]
        x = (self._embed(images) + positions).to(self._dtype)  # [P, D]
        taps = []
        for index, block in enumerate(visual.blocks):
            attended = self._attend(block.attn.qkv(block.norm1(x)), cos, sin, lengths)
            x = x + block.attn.proj(attended)
            x = x + block.mlp(block.norm2(x))
            if index in config.deepstack_layers:
                merger = visual.deepstack_merger_list[config.deepstack_layers.index(index)]
                taps.append(merger(x))
        return torch.stack([visual.merger(x), *taps])

    def _embed(self, images: Sequence[Patches]) -> Tensor:
        """Pixels → [P, D]; consecutive images, or consecutive frames of videos, together."""
        embedded = []
        for width, alike in groupby(images, lambda image: image.pixels.shape[1]):
            pixels = np.concatenate([image.pixels for image in alike])
            patches = to_device(pixels, self._device)  # bytes: a quarter of the size of float32
            embedded.append(linear(patches.float(), *self._modules.patch_embeddings[width]))
        return torch.cat(embedded)

    def _attend(self, qkv: Tensor, cos: Tensor, sin: Tensor, lengths: list[int]) -> Tensor:
        """qkv [P, 3 * D] → [P, D]; patches attend to those of the same frame."""
        shape = (-1, self._config.num_heads, self._config.head_dim)
        query, key, value = (part.reshape(shape) for part in qkv.chunk(3, dim=-1))
        query, key = (rotate(part, cos[:, None], sin[:, None]) for part in (query, key))
        attended = []
        start = 0
        for length, frames in groupby(lengths):  # consecutive frames of one size are a batch
            count = len(list(frames))
            stop = start + count * length
            q, k, v = (
                part[start:stop].view(count, length, *shape[1:]).transpose(1, 2)
                for part in (query, key, value)
            )
            out = scaled_dot_product_attention(q, k, v)  # [frames, heads, length, d]
            attended.append(out.transpose(1, 2).reshape(count * length, -1))
            start = stop
        return torch.cat(attended)

    def _make_tables(self, frame: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """Learned positions [P, D] and rotations [P, head_dim / 2] of a frame, float32."""
        config = self._config
        cos, sin = vision_rope(frame, config.head_dim, config.rope_theta, config.merge_size)
        positions = interpolate_positions(self._modules.positions, frame, config.merge_size)
        first, second, third = (to_device(table, self._device) for table in (positions, cos, sin))
        return first, second, third
