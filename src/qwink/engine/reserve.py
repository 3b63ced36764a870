"""Memory that costs nothing until it is used."""

from __future__ import annotations

import math
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


def reserve(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros whose pages are taken from the system one by one, when they are first written to.

    NumPy's own zeros would be refused where they exceed the machine's memory, though only a
    fraction is ever used; it would also ask for huge pages, of which most would stay empty.
    """
    num_bytes = dtype.itemsize * math.prod(shape)
    if not hasattr(mmap, "MAP_PRIVATE"):  # not a Unix
        return np.zeros(shape, dtype)
    noreserve = 0x4000 if sys.platform == "linux" else 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve
    return np.frombuffer(mmap.mmap(-1, num_bytes, flags=flags), dtype).reshape(shape)
