"""Whether encoded pictures are worth compressing: sizes and times of codecs on real activations."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from qwink.cache.embeddings import as_float16
from qwink.types import EncodedImage

Codec = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Compressed:
    """One codec. `split`: all low bytes before all high bytes, which compresses better."""

    codec: str
    split: bool
    size: float  # over the original's
    compress_mb_per_s: float
    decompress_mb_per_s: float


def measure(images: Sequence[EncodedImage]) -> list[Compressed]:
    """Each codec on the float16 arrays of all images together."""
    halves = [as_float16(image) for image in images]
    plain = b"".join(part.tobytes() for one in halves for part in (one.embeds, one.deepstack))
    split = np.frombuffer(plain, np.uint8).reshape(-1, 2).T.tobytes()
    return [
        _measure(name, codec, data, data is split)
        for name, codec in _codecs(len(plain)).items()
        for data in (plain, split)
    ]


def _codecs(num_bytes: int) -> dict[str, Codec]:
    codecs: dict[str, Codec] = {
        f"zlib {level}": (partial(zlib.compress, level=level), zlib.decompress) for level in (1, 6)
    }
    try:
        import pyarrow
    except ModuleNotFoundError:
        return codecs
    for name, level in (("zstd", 1), ("zstd", 9), ("lz4", None)):
        codec = pyarrow.Codec(name, level)
        codecs[name if level is None else f"{name} {level}"] = (
            partial(codec.compress, asbytes=True),
            partial(codec.decompress, decompressed_size=num_bytes, asbytes=True),
        )
    return codecs


def _measure(name: str, codec: Codec, data: bytes, split: bool) -> Compressed:
    compress, decompress = codec
    packed = compress(data)
    if decompress(packed) != data:
        raise SystemExit(f"{name} does not give back what it was given")
    return Compressed(
        name,
        split,
        round(len(packed) / len(data), 3),
        _rate(lambda: compress(data), len(data)),
        _rate(lambda: decompress(packed), len(data)),
    )


def _rate(work: Callable[[], bytes], num_bytes: int) -> float:
    """Megabytes a second, the best of several times."""
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return float(f"{num_bytes / best / 1e6:.4g}")
