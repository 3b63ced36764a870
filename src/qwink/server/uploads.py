"""Stores uploaded pictures and videos, by the SHA-256 of their bytes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from qwink.cache.memory import MemoryCache
from qwink.inputs.containers import is_video
from qwink.inputs.images import MAX_IMAGE_PIXELS, open_image
from qwink.inputs.video import open_video
from qwink.server.failures import Failure

SCHEME = "qwink:"
_KEY = re.compile(r"(?:qwink:)?(?:sha256:)?([0-9a-f]{64})")


@dataclass(frozen=True, slots=True, eq=False)
class Upload:
    """An uploaded file, unchanged. `size` is (width, height) after EXIF rotation."""

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
    """The most recently used uploads, at most `max_bytes` in total. Thread-safe."""

    def __init__(self, max_bytes: int, max_image_pixels: int = MAX_IMAGE_PIXELS) -> None:
        self._max_image_pixels = max_image_pixels
        self.cache: MemoryCache[Upload] = MemoryCache(max_bytes)
        self.hits = self.misses = 0

    def add(self, content: bytes) -> Upload:
        """Store a picture or video.

        Raises ImageError if it cannot be read, Failure if it is too large.
        """
        key = hashlib.sha256(content).hexdigest()
        if is_video(content):
            video = open_video(content, self._max_image_pixels)
            upload = Upload(content, key, video.format, video.size, ())
        else:
            opened = open_image(content, self._max_image_pixels)
            upload = Upload(content, key, opened.format, opened.size, opened.warnings)
        if upload.nbytes > self.cache.max_bytes:
            limit = self.cache.max_bytes >> 20
            raise Failure(
                413,
                f"this file is larger than the {limit} MiB for uploads; send a smaller one",
                "image_too_large",
                "file",
            )
        self.cache.put(key, upload)
        return upload

    def find(self, name: str) -> Upload | None:
        """The stored picture with this id or hash, or None."""
        match = _KEY.fullmatch(name)
        upload = self.cache.get(match[1]) if match else None
        if upload is None:
            self.misses += 1
        else:
            self.hits += 1
        return upload
