"""Detects a GPU without PyTorch, which takes seconds to import."""

from __future__ import annotations

import ctypes
import sys


def has_nvidia_gpu() -> bool:
    """Whether NVIDIA's driver reports a GPU. CUDA_VISIBLE_DEVICES can hide GPUs from it."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
        count = ctypes.c_int(0)
        found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    except (OSError, AttributeError):  # no driver, or not a driver of NVIDIA
        return False
    return found and count.value > 0
