"""A device's memory: checks before it is allocated, and recovery when it runs out."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from qwink.errors import OutOfMemory

logger = logging.getLogger(__name__)

# The part of a card's memory left for temporary tensors. An estimate: it was not measured on a
# card. If it is too small, requests fail with OutOfMemory.
HEADROOM = 0.1


class DeviceMemory:
    """Bytes of one device. A CPU's are not counted: pages are taken only when they are used."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def available(self) -> int | None:
        """Bytes that may be allocated permanently; None where they are not counted."""
        if self.device.type != "cuda":
            return None
        self.release()
        free, total = torch.cuda.mem_get_info(self.device)
        return max(0, int(free - HEADROOM * total))

    def release(self) -> None:
        """Return the memory that PyTorch keeps for later allocations."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @contextmanager
    def recovering(self, work: str, advice: str) -> Iterator[None]:
        """Turn PyTorch's out-of-memory into OutOfMemory and free the memory of the failed work."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            # The traceback's frames keep the tensors of the failed work alive.
            traceback.clear_frames(error.__traceback__)
            self.release()
            message = f"{self.device} has not enough memory to {work}; {advice}"
            raise OutOfMemory(message) from None


def check_weights(num_bytes: int, memory: DeviceMemory) -> None:
    """Raises OutOfMemory if the weights do not fit. Called before they are read."""
    available = memory.available()
    if available is not None and num_bytes > available:
        raise OutOfMemory(
            f"the weights take {_gb(num_bytes)}, {memory.device} has room for {_gb(available)}; "
            "use a smaller model, --quantize int8, or --device cpu"
        )


def fit_slots(num_slots: int, capacity: int, bytes_per_token: int, memory: DeviceMemory) -> int:
    """How many slots of `capacity` tokens fit, up to `num_slots`.

    Raises OutOfMemory when none fits.
    """
    available = memory.available()
    if available is None:
        return num_slots
    fitting = min(num_slots, available // (capacity * bytes_per_token))
    if fitting < 1:
        most = max(0, available // bytes_per_token)
        raise OutOfMemory(
            f"a context of {capacity} tokens takes {_gb(capacity * bytes_per_token)}, "
            f"{memory.device} has room for {_gb(available)} or {most} tokens beside the weights; "
            "lower --context, or use --quantize int8 or a smaller model"
        )
    if fitting < num_slots:
        logger.warning(
            "%s has room for %d answers at once, not %d; a lower context makes room for more",
            memory.device,
            fitting,
            num_slots,
        )
    return fitting


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
