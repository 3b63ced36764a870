"""Memory that the system provides page by page, when it is first written to."""

from __future__ import annotations

import math
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Reserved:
    """Zeros of one shape, as `array`. `release` returns pages to the system.

    NumPy's own zeros would be refused where they exceed the machine's memory, though only a
    fraction is ever used; NumPy would also ask for huge pages, most of which would stay empty.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        num_bytes = dtype.itemsize * math.prod(shape)
        self._pages: mmap.mmap | None = None
        if not hasattr(mmap, "MAP_PRIVATE"):  # not a Unix
            self.array: NDArray[Any] = np.zeros(shape, dtype)
            return
        noreserve = 0x4000 if sys.platform == "linux" else 0
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve
        self._pages = mmap.mmap(-1, num_bytes, flags=flags)
        self.array = np.frombuffer(self._pages, dtype).reshape(shape)

    def release(self, start: int, stop: int) -> None:
        """Return the whole pages between two byte offsets; they read as zeros from then on."""
        if self._pages is None or not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        stop = stop // mmap.PAGESIZE * mmap.PAGESIZE
        if start < stop:
            self._pages.madvise(mmap.MADV_DONTNEED, start, stop - start)
