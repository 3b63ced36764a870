"""The file format of one encoded image, float16.

A reader knows which key, grid and shapes to expect, so it knows the file's exact size and every
byte of its header. It never parses what a file says: it compares.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwink.cache.embeddings import Expected
from qwink.types import EncodedImage

# A file: magic, checksum of all that follows, length of the header, header (JSON, padded so that
# the arrays are aligned), embeds, deepstack. Numbers are little-endian.
_MAGIC = b"QWINKEI1"
_CHECKSUM_BYTES = 32
_ALIGNMENT = 64
_START = len(_MAGIC) + _CHECKSUM_BYTES
_EXPONENT = 0x7C00  # of a float16: all ones mean NaN or infinity


class Unusable(Exception):
    """An entry is not what `pack` wrote for the expected image."""


def _header(expected: Expected) -> bytes:
    """Length of the header, and header."""
    header = json.dumps(
        {
            "key": expected.key,
            "grid": [expected.grid.t, expected.grid.h, expected.grid.w],
            "embeds": expected.embeds,
            "deepstack": expected.deepstack,
        }
    ).encode()
    header += b" " * (-(_START + 4 + len(header)) % _ALIGNMENT)
    return len(header).to_bytes(4, "little") + header


def file_size(expected: Expected) -> int:
    """Size of the whole file."""
    num_values = math.prod(expected.embeds) + math.prod(expected.deepstack)
    return _START + len(_header(expected)) + 2 * num_values


def pack(image: EncodedImage) -> list[bytes]:
    """A file's content, in pieces."""
    arrays = [np.ascontiguousarray(array, "<f2") for array in (image.embeds, image.deepstack)]
    parts = [_header(Expected.of(image)), *(array.tobytes() for array in arrays)]
    checksum = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    for part in parts:
        checksum.update(part)
    return [_MAGIC + checksum.digest(), *parts]


def read(path: Path, size: int) -> bytes:
    """The content of a file of `size` bytes. Raises Unusable for anything else, and OSError."""
    # Neither follow a link nor wait for the other end of a pipe.
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            raise Unusable
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(size)
    finally:
        os.close(descriptor)
    if len(data) != size:
        raise Unusable
    return data


def unpack(data: bytes, expected: Expected) -> EncodedImage:
    """What `pack` packed for the expected image. Raises Unusable for anything else."""
    body = memoryview(data)[_START:]
    checksum = hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest()
    header = _header(expected)
    if data[:_START] != _MAGIC + checksum or body[: len(header)] != header:
        raise Unusable
    values: NDArray[np.float16] = np.frombuffer(body[len(header) :], "<f2")
    if not is_finite(values):
        raise Unusable
    split = math.prod(expected.embeds)
    return EncodedImage(
        values[:split].reshape(expected.embeds),
        values[split:].reshape(expected.deepstack),
        expected.grid,
        expected.key,
    )


def is_finite(values: NDArray[np.float16]) -> bool:
    """As numpy.isfinite, several times as fast for float16."""
    bits = np.ascontiguousarray(values).reshape(-1).view(np.uint16)
    return not bool(((bits & _EXPONENT) == _EXPONENT).any())
