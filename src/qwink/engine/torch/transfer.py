"""Copies of arrays to the device and back.

Copies to and from a GPU go through pinned memory, which PyTorch reuses for the next copy. Copies
to a GPU are asynchronous: they run before the kernels that are queued after them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A copy of the array in the device's memory."""
    if device.type == "cpu":
        return torch.from_numpy(array.copy())
    pinned = torch.empty(
        array.shape, dtype=torch.from_numpy(array[:0].copy()).dtype, pin_memory=True
    )
    np.copyto(pinned.numpy(), array)
    return pinned.to(device, non_blocking=True)


def to_host(tensor: Tensor) -> NDArray[Any]:
    """A copy of the tensor as an array; waits until it is complete."""
    if tensor.device.type == "cpu":
        return tensor.numpy().copy()
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    pinned.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    array: NDArray[Any] = pinned.numpy()
    return array
