"""Keys and values in the device's memory, a slot for each sequence."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from qwink.engine.reserve import Reserved
from qwink.model.config import TextConfig

ALIGNMENT = 64  # views of the cache are whole multiples of this many tokens


def aligned(num_tokens: int) -> int:
    """`num_tokens` rounded up."""
    return -(-num_tokens // ALIGNMENT) * ALIGNMENT


def bytes_per_token(config: TextConfig, dtype: torch.dtype) -> int:
    """Of one sequence, all layers together."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize


class TorchCache:
    """[layers, 2, slots, KV heads, rows, head_dim].

    Each slot has one row more than tokens fit: padding writes there, and nothing reads it.
    On a CPU, memory is taken as tokens are written; a GPU's is taken at once.
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
        self.bytes_per_token = bytes_per_token(config, dtype)
        self.scratch = aligned(capacity)  # the row that padding writes to
        rows = self.scratch + 1
        shape = (config.num_layers, 2, num_slots, config.num_kv_heads, rows, config.head_dim)
        self._pages: Reserved | None = None
        if device.type == "cpu":
            num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            self._pages = Reserved((num_bytes,), np.dtype(np.uint8))
            self._data = torch.from_numpy(self._pages.array).view(dtype).reshape(shape)
        else:
            self._data = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def grows(self) -> bool:
        """Whether memory is taken as tokens come."""
        return self._pages is not None

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, [slots, KV heads, rows, head_dim], to read and write."""
        keys, values = self._data[index]
        return keys, values

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Overwrite the first tokens of slot `target` with those of slot `source`."""
        self._data[:, :, target, :, :num_tokens] = self._data[:, :, source, :, :num_tokens]

    def truncate(self, slot: int, num_tokens: int) -> None:
        """Keep the first tokens of a slot; on a CPU, return the memory behind them."""
        if self._pages is None:
            return
        num_layers, _, num_slots, num_heads, rows, size = self._data.shape
        row_bytes = size * self._data.itemsize
        for pair in range(2 * num_layers):
            for head in range(num_heads):
                start = ((pair * num_slots + slot) * num_heads + head) * rows
                self._pages.release((start + num_tokens) * row_bytes, (start + rows) * row_bytes)

    def clear(self, slot: int) -> None:
        """Set a slot to zeros: a value that is not a number spoils even tokens that mask it."""
        self._data[:, :, slot] = 0
