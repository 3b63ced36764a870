"""Our own operators for ONNX Runtime, in C, and what can be computed on this machine.

Wheels of a release bring the C library; installed from source, it is compiled on Linux if there is
a C compiler. It holds kernels for several instruction sets of x86-64 and ARM64 and uses the fastest
that the processor has. All of them read the same artifacts. Without the library, graphs are made of
ONNX Runtime's operators.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

from qwink.native.processor import has_vnni, is_arm64, is_x86_64

# How an artifact stores weights, keys and values, and which operators its graphs are made of: ours,
# or ONNX Runtime's alone.
Layout = Literal["tiles16", "onnxruntime"]
LAYOUTS: tuple[Layout, ...] = ("tiles16", "onnxruntime")
NATIVE_LAYOUT: Layout = "tiles16"

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
LIBRARY = Path(__file__).with_name("_kernels" + _SUFFIX)
FALLBACK = "onnxruntime"  # the name of ONNX Runtime's kernels

FULL_INT8 = 127
# The instruction that older x86 processors multiply bytes with adds two products in 16 bits, and
# saturates. An unsigned activation is at most 255: 2 · 255 · 64 = 32640 still fits.
REDUCED_INT8 = 64


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this machine computes with.

    `kernels` names the set in use for artifacts of our layout, or "onnxruntime" if there is none;
    `supported` are the sets that run here, fastest first. `layouts` are those of artifacts that
    load here, fastest first. `cheap_rows` is how many tokens of a step cost little more than one.
    `int8_limit` is the largest int8 weight whose products ONNX Runtime adds up exactly here.
    `advice` says why the kernels in use are not the fastest for this processor, and what to do;
    empty if they are.
    """

    kernels: str
    supported: tuple[str, ...]
    layouts: tuple[Layout, ...]
    cheap_rows: int
    int8_limit: int
    advice: str

    def kernels_of(self, layout: Layout) -> str:
        """The name of the kernels that compute an artifact of this layout here."""
        return FALLBACK if layout == "onnxruntime" else self.kernels


def capabilities() -> Capabilities:
    """What this machine computes with, at this moment: `choose_kernels` changes it."""
    saturates = is_x86_64() and not has_vnni()
    int8_limit = REDUCED_INT8 if saturates else FULL_INT8
    try:
        library = _library()
    except (OSError, AttributeError) as error:
        return Capabilities(FALLBACK, (), ("onnxruntime",), 1, int8_limit, _missing(error))
    in_use: bytes | None = library.qwink_kernels()
    supported: list[str] = []
    for index in count():
        name: bytes | None = library.qwink_kernels_supported(index)
        if name is None:
            break
        supported.append(name.decode())
    if in_use is None:
        needed = "dot products (ARMv8.2)" if is_arm64() else "AVX2"
        advice = f"this processor lacks {needed}, which qwink's own kernels need"
        return Capabilities(FALLBACK, (), ("onnxruntime",), 1, int8_limit, advice)
    kernels = in_use.decode()
    advice = "" if kernels == supported[0] else f"kernels {supported[0]} are faster here"
    rows: int = library.qwink_cheap_rows()
    return Capabilities(kernels, tuple(supported), LAYOUTS, max(rows, 1), int8_limit, advice)


def choose_kernels(name: str | None) -> None:
    """Use this set for operators created from now on, or the fastest again: for comparisons.

    Raises ValueError if it does not run here.
    """
    if _library().qwink_choose_kernels(name and name.encode()):
        raise ValueError(f"kernels {name} do not run on this processor")


def cache_type(layout: Layout) -> Literal["float16", "float32"]:
    """The type of keys and values. Our attention reads half precision, half the bytes."""
    return "float32" if layout == "onnxruntime" else "float16"


def _library() -> ctypes.CDLL:
    """Raises OSError if it is not there, AttributeError if another version of qwink made it."""
    library = ctypes.CDLL(str(LIBRARY))
    library.qwink_kernels.restype = ctypes.c_char_p
    library.qwink_kernels_supported.argtypes = [ctypes.c_int]
    library.qwink_kernels_supported.restype = ctypes.c_char_p
    library.qwink_cheap_rows.restype = ctypes.c_int64
    library.qwink_choose_kernels.argtypes = [ctypes.c_char_p]
    return library


def _missing(error: Exception) -> str:
    """Why the library does not load, and the way out."""
    if not (is_x86_64() or is_arm64()):
        return "qwink's own kernels run on x86-64 and ARM64 only"
    if not LIBRARY.is_file():
        if sys.platform != "linux":
            return (
                "qwink was installed from source; install its wheel, which brings its own kernels"
            )
        return (
            "qwink was installed from source without a C compiler; install its wheel, or install a "
            "compiler (such as gcc) and qwink again; its own kernels are several times faster"
        )
    return f"qwink's own kernels do not load; reinstall qwink: {error}"
