"""Pictures that clients have uploaded, by the hash of their bytes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from qwink.cache.memory import MemoryCache
from qwink.inputs.images import open_image
from qwink.server.failures import Failure

SCHEME = "qwink:"
_KEY = re.compile(r"(?:qwink:)?(?:sha256:)?([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """A picture's file as it came; `size` is (width, height), upright."""

    content: bytes
    key: str  # SHA-256 in hex
    format: str
    size: tuple[int, int]
    warnings: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{SCHEME}sha256:{self.key}"

    @property
    def nbytes(self) -> int:
        return len(self.content) + 1024


class Uploads:
    """The files used last, up to `max_bytes` together. Safe to share between threads."""

    def __init__(self, max_bytes: int) -> None:
        self.cache: MemoryCache[Upload] = MemoryCache(max_bytes)
        self.hits = self.misses = 0

    def add(self, content: bytes) -> Upload:
        """Keep a picture. Raises ImageError if it is none, Failure if it is too large to keep."""
        opened = open_image(content)
        key = hashlib.sha256(content).hexdigest()
        upload = Upload(content, key, opened.format, opened.size, opened.warnings)
        if upload.nbytes > self.cache.max_bytes:
            limit = self.cache.max_bytes >> 20
            raise Failure(
                413, f"uploads hold {limit} MiB, less than this picture", "image_too_large", "file"
            )
        self.cache.put(key, upload)
        return upload

    def find(self, name: str) -> Upload | None:
        """A picture by its id or its hash alone."""
        match = _KEY.fullmatch(name)
        upload = self.cache.get(match[1]) if match else None
        if upload is None:
            self.misses += 1
        else:
            self.hits += 1
        return upload
