"""Keys and values in the device's memory, a slot for each sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwink.engine.reserve import Reserved
from qwink.model.config import TextConfig

ALIGNMENT = 64  # passes attend to a multiple of this many tokens


def aligned(num_tokens: int) -> int:
    """`num_tokens` rounded up."""
    return -(-num_tokens // ALIGNMENT) * ALIGNMENT


def bytes_per_token(config: TextConfig, dtype: torch.dtype) -> int:
    """Bytes of one token's keys and values in all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize


def neighbours(slots: Sequence[int]) -> slice | None:
    """The slots as a slice if each is the one after the slot before it, else None."""
    window = slice(slots[0], slots[0] + len(slots))
    return window if list(slots) == list(range(window.start, window.stop)) else None


class TorchCache:
    """[layers, 2, slots, KV heads, rows, head_dim].

    Each slot has a scratch row behind those of its tokens: padding writes there, and it is never
    read. On a CPU the system provides pages as tokens are written; on a GPU all memory is
    allocated at once.
    """

    def __init__(
        self,
        config: TextConfig,
        num_slots: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.num_slots, self.capacity, self.device = num_slots, capacity, device
        self.grows = device.type == "cpu"
        self.bytes_per_token = bytes_per_token(config, dtype)
        self.scratch = aligned(capacity)  # the number of the scratch row
        rows = self.scratch + 1
        shape = (config.num_layers, 2, num_slots, config.num_kv_heads, rows, config.head_dim)
        self._memory: Reserved | None = None
        if self.grows:
            self._memory = Reserved((math.prod(shape) * dtype.itemsize,), np.dtype(np.uint8))
            self._data = torch.from_numpy(self._memory.array).view(dtype).view(shape)
        else:
            self._data = torch.zeros(shape, dtype=dtype, device=device)

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, [num_slots, KV heads, rows, head_dim], to read and write."""
        keys, values = self._data[index]
        return keys, values

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Overwrite the first tokens of slot `target` with those of slot `source`."""
        self._data[:, :, target, :, :num_tokens] = self._data[:, :, source, :, :num_tokens]

    def read(self, slot: int, num_tokens: int) -> NDArray[np.float32]:
        """A copy of a slot's first tokens, to be looked at: [layers, 2, KV heads, tokens, d]."""
        values: NDArray[np.float32] = self._data[:, :, slot, :, :num_tokens].float().cpu().numpy()
        return values

    def truncate(self, slot: int, num_tokens: int) -> None:
        """Keep the first tokens of a slot; return the memory behind them to the system.

        On a GPU nothing is returned: the memory stays allocated for the next sequence.
        """
        if self._memory is None:
            return
        num_layers, _, num_slots, num_heads, rows, size = self._data.shape
        row_bytes = size * self._data.element_size()
        for pair in range(2 * num_layers):
            for head in range(num_heads):
                start = ((pair * num_slots + slot) * num_heads + head) * rows
                self._memory.release((start + num_tokens) * row_bytes, (start + rows) * row_bytes)

    def clear(self, slot: int, start: int, stop: int) -> None:
        """Set tokens `start` to `stop` of a slot to zero.

        A NaN must not stay: a masked token has weight zero, and zero times NaN is NaN.
        """
        self._data[:, :, slot, :, start:stop] = 0
