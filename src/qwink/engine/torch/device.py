"""The choice of the device and of the type of numbers."""

from __future__ import annotations

import torch

from qwink.errors import OptionError

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_NATIVE_BFLOAT16 = 8  # the first major compute capability of NVIDIA that has it


def choose_device(name: str) -> torch.device:
    """The device of that name; "auto" is the first GPU, or the CPU.

    Raises OptionError for a device that this machine does not have.
    """
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
        reason = " (it is built for CPUs only)" if torch.version.cuda is None else ""
        raise OptionError(f"device is {name}, but PyTorch finds no GPU{reason}; use device cpu")
    index = device.index or 0
    if index >= count:
        raise OptionError(f"device is {name}, but the last device here is cuda:{count - 1}")
    return torch.device("cuda", index)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The type of that name; "auto" is float32 on a CPU, and on a GPU bfloat16, or float16 on
    cards that lack it.

    Raises OptionError for a type that the card does not support.
    """
    if name != "auto" and name not in DTYPES:
        raise OptionError(f"dtype is {name!r}; it must be auto, {', '.join(DTYPES)}")
    if device.type == "cpu":
        return torch.float32 if name == "auto" else DTYPES[name]
    native = torch.cuda.get_device_capability(device)[0] >= _NATIVE_BFLOAT16
    if name == "bfloat16" and not native:
        card = torch.cuda.get_device_name(device)
        raise OptionError(f"dtype is bfloat16, which {card} does not support; use auto or float16")
    return DTYPES[name] if name != "auto" else torch.bfloat16 if native else torch.float16


def device_name(device: torch.device) -> str:
    """The name to show: "cpu", or "cuda:0 (Tesla T4)"."""
    if device.type == "cpu":
        return "cpu"
    return f"{device} ({torch.cuda.get_device_name(device)})"
