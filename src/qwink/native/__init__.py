"""Our own operators for ONNX Runtime, in C: the products that an answer's time goes into.

Compiled when the package is built, where a C compiler is at hand; they need an x86-64 processor
with AVX-512 VNNI, and use AMX tiles where there are any. Without them graphs are made of ONNX
Runtime's own operators.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Literal

# Whose operators a graph is made of: ours, for processors with AMX or with AVX-512 VNNI, or ONNX
# Runtime's alone. From the most to the least that a processor must offer.
Kernels = Literal["amx", "vnni", "onnxruntime"]
KERNELS: tuple[Kernels, ...] = ("amx", "vnni", "onnxruntime")

LIBRARY = Path(__file__).with_name("_kernels.so")


@cache
def best_kernels() -> Kernels:
    """The fastest that this processor runs; "onnxruntime" also where the library is not there."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return "onnxruntime"
    level: int = library.qwink_cpu_level()
    return KERNELS[-1 - level]


def runs(kernels: Kernels) -> bool:
    """Whether graphs made of `kernels` run on this processor."""
    return KERNELS.index(kernels) >= KERNELS.index(best_kernels())
