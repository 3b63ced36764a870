"""Which device computes, and in which type of number."""

from __future__ import annotations

import torch

from qwink.errors import OptionError

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_NATIVE_BFLOAT16 = 8  # NVIDIA's compute capability from which on cards have it


def choose_device(name: str) -> torch.device:
    """ "auto" takes the first GPU there is. Raises OptionError for a device that is not there."""
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise OptionError(f"device is {name!r}; it must be auto, cpu, cuda or cuda:N")
    if device.type == "cpu":
        return device
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        build = "this PyTorch is built for CPUs only" if torch.version.cuda is None else "no GPU"
        raise OptionError(f"device is {name}, but PyTorch finds none ({build}); use device cpu")
    index = device.index or 0
    if index >= count:
        raise OptionError(f"device is {name}, but the last one here is cuda:{count - 1}")
    return torch.device("cuda", index)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """ "auto": float32 on a CPU; on a GPU bfloat16, or float16 on cards that lack it.

    Raises OptionError for a type that the card cannot compute with.
    """
    if name != "auto" and name not in DTYPES:
        raise OptionError(f"dtype is {name!r}; it must be auto, {', '.join(DTYPES)}")
    if device.type == "cpu":
        return torch.float32 if name == "auto" else DTYPES[name]
    native = torch.cuda.get_device_capability(device)[0] >= _NATIVE_BFLOAT16
    if name == "bfloat16" and not native:
        card = torch.cuda.get_device_name(device)
        raise OptionError(f"dtype is bfloat16, which {card} has not; use auto or float16")
    return DTYPES[name] if name != "auto" else torch.bfloat16 if native else torch.float16


def device_name(device: torch.device) -> str:
    """What people call it: "cpu", or "cuda:0 (Tesla T4)"."""
    if device.type == "cpu":
        return "cpu"
    return f"{device} ({torch.cuda.get_device_name(device)})"
