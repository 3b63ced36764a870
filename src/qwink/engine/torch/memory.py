"""A device's memory: what fits, and what happens when it does not suffice after all."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from qwink.errors import OutOfMemory

logger = logging.getLogger(__name__)

# Of a card's memory, for what comes and goes while a step is computed. Not measured: no card
# could be had. Too little shows as requests that fail for want of memory.
HEADROOM = 0.1


class DeviceMemory:
    """Bytes of one device. A CPU's are not counted: pages are taken only as they are used."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def available(self) -> int | None:
        """What may be filled for good; None where nothing is counted."""
        if self.device.type != "cuda":
            return None
        self.release()
        free, total = torch.cuda.mem_get_info(self.device)
        return max(0, int(free - HEADROOM * total))

    def release(self) -> None:
        """Give back what PyTorch holds in reserve."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @contextmanager
    def recovering(self, work: str, advice: str) -> Iterator[None]:
        """Turn PyTorch's out-of-memory into an OutOfMemory, after which others can go on."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            # Whoever tells of the error must not keep the tensors of the failed step alive.
            traceback.clear_frames(error.__traceback__)
            self.release()
            message = f"{self.device} has not enough memory to {work}; {advice}"
            raise OutOfMemory(message) from None


def check_weights(num_bytes: int, memory: DeviceMemory) -> None:
    """Raises OutOfMemory, before anything is read, for weights that cannot fit."""
    available = memory.available()
    if available is not None and num_bytes > available:
        raise OutOfMemory(
            f"the weights take {_gb(num_bytes)}, {memory.device} has room for {_gb(available)}; "
            "use a smaller model, --quantize int8, or --device cpu"
        )


def fit_slots(num_slots: int, capacity: int, bytes_per_token: int, memory: DeviceMemory) -> int:
    """How many slots of `capacity` tokens there is room for, up to `num_slots`.

    Raises OutOfMemory when not even one fits.
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
