"""Keys and values in the device's memory, a slot for each sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwink.engine.reserve import reserve
from qwink.engine.torch.transfer import to_device
from qwink.model.config import TextConfig

ALIGNMENT = 64  # views of the cache are whole multiples of this many tokens


def aligned(num_tokens: int) -> int:
    """`num_tokens` rounded up."""
    return -(-num_tokens // ALIGNMENT) * ALIGNMENT


def bytes_per_token(config: TextConfig, dtype: torch.dtype) -> int:
    """Of one sequence, all layers together."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize


class TorchCache:
    """[layers, 2, slots, KV heads, rows, head_dim]; neighbouring slots are one batch.

    Each slot has one row more than tokens fit: padding writes there, and nobody reads it.
    On a CPU pages are taken as tokens come; a GPU's memory is taken at once.
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
        self.scratch = aligned(capacity)  # the row that padding writes to
        rows = self.scratch + 1
        shape = (config.num_layers, 2, num_slots, config.num_kv_heads, rows, config.head_dim)
        self._data = _zeros(shape, device, dtype)

    def layer(self, index: int, first_slot: int, num_slots: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, [num_slots, KV heads, rows, head_dim], to read and write."""
        keys, values = self._data[index, :, first_slot : first_slot + num_slots]
        return keys, values

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Overwrite the first tokens of slot `target` with those of slot `source`."""
        self._data[:, :, target, :, :num_tokens] = self._data[:, :, source, :, :num_tokens]

    def clear(self, slot: int) -> None:
        """Wipe a slot: what is not a number would spoil even those that do not attend to it."""
        self._data[:, :, slot] = 0

    def read(self, slot: int, num_tokens: int) -> NDArray[Any]:
        """A copy of a slot's first tokens: [layers, 2, KV heads, tokens, head_dim].

        bfloat16 as its bits, for NumPy has no such type.
        """
        values = self._data[:, :, slot, :, :num_tokens]
        if values.dtype == torch.bfloat16:
            values = values.view(torch.int16)
        # Not by way of pinned memory: this is kept, and that is scarce.
        return values.to("cpu", copy=True).numpy()

    def write(self, slot: int, values: NDArray[Any]) -> None:
        """Put what `read` gave at the start of a slot."""
        stored = to_device(np.ascontiguousarray(values), self.device)
        if self._data.dtype == torch.bfloat16:
            stored = stored.view(torch.bfloat16)
        self._data[:, :, slot, :, : values.shape[3]] = stored


def _zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    pages = torch.from_numpy(reserve((num_bytes,), np.dtype(np.uint8)))
    return pages.view(dtype).reshape(shape)
