"""Memory that costs nothing until it is used."""

from __future__ import annotations

import math
import mmap
import sys

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]


def reserve(shape: tuple[int, ...]) -> Float:
    """Zeros whose pages are taken from the system one by one, when they are first written to.

    NumPy's own zeros would be refused where they exceed the machine's memory, though only a
    fraction is ever used; it would also ask for huge pages, of which most would stay empty.
    """
    num_bytes = 4 * math.prod(shape)
    if not hasattr(mmap, "MAP_PRIVATE"):  # not a Unix
        return np.zeros(shape, np.float32)
    noreserve = 0x4000 if sys.platform == "linux" else 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve
    return np.frombuffer(mmap.mmap(-1, num_bytes, flags=flags), np.float32).reshape(shape)
