"""Reads a safetensors file by memory map.

The format: an 8-byte length, a JSON header of names, types, shapes and byte ranges, the data.
The safetensors library cannot return bfloat16 without PyTorch or ml_dtypes, so this module
parses the header.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.errors import CheckpointError
from qwink.model.fields import is_lfs_pointer

MAX_HEADER_BYTES = 100_000_000  # the limit in the format's specification


@dataclass(frozen=True, slots=True)
class Entry:
    """The location of one tensor; `start` is in bytes from the start of the file."""

    file: SafetensorsFile
    dtype: str
    shape: tuple[int, ...]
    start: int
    num_bytes: int


class SafetensorsFile:
    """A mapped file. Raises CheckpointError if it is missing, unreadable, truncated or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.bytes: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
        except ValueError:
            raise CheckpointError(f"{path}: empty; expected a safetensors file") from None
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror}") from None
        self.header_bytes = self._header_bytes()
        self.entries = dict(self._entries())

    def close(self) -> None:
        """Forget the entries, which refer to the file: without them it is unmapped at once."""
        self.entries = {}

    def forget(self, start: int, num_bytes: int) -> None:
        """Let the system drop these pages from memory."""
        mapped = self.bytes._mmap  # type: ignore[attr-defined]
        page = mmap.PAGESIZE
        first, last = -(-start // page) * page, (start + num_bytes) // page * page
        if last > first and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _header_bytes(self) -> bytes:
        start = self.bytes[:64].tobytes()
        if is_lfs_pointer(start):
            raise CheckpointError(f"{self.path}: a Git-LFS pointer; run 'git lfs pull'")
        length = int.from_bytes(start[:8], "little")
        if len(start) < 10 or start[8:9] != b"{" or length > MAX_HEADER_BYTES:
            raise CheckpointError(f"{self.path}: not a safetensors file")
        if 8 + length > self.bytes.size:
            raise self._truncated(8 + length)
        return self.bytes[8 : 8 + length].tobytes()

    def _entries(self) -> Iterator[tuple[str, Entry]]:
        try:
            header: dict[str, Any] = json.loads(self.header_bytes)
            for name, value in header.items():
                if name == "__metadata__":
                    continue
                begin, end = (int(offset) for offset in value["data_offsets"])
                shape = tuple(int(size) for size in value["shape"])
                dtype, start = str(value["dtype"]), 8 + len(self.header_bytes) + begin
                if not 0 <= begin <= end or min(shape, default=0) < 0:
                    raise ValueError(name)
                item_bytes = {"BF16": 2, "F16": 2, "F32": 4}.get(
                    dtype
                )  # other types are not read, so their sizes are not checked
                if item_bytes and math.prod(shape) * item_bytes != end - begin:
                    raise ValueError(name)
                if start + end - begin > self.bytes.size:
                    raise self._truncated(start + end - begin)
                yield name, Entry(self, dtype, shape, start, end - begin)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CheckpointError(f"{self.path}: damaged safetensors header") from None

    def _truncated(self, num_bytes: int) -> CheckpointError:
        return CheckpointError(
            f"{self.path}: truncated: it has {self.bytes.size} bytes, its header says at least "
            f"{num_bytes}; download it again"
        )
