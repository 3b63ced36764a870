"""Stores uploaded pictures and videos, by the SHA-256 of their bytes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from qwink.cache.embeddings import PATIENCE_S
from qwink.cache.memory import MemoryCache
from qwink.errors import ImageError
from qwink.inputs.containers import is_video
from qwink.inputs.images import MAX_IMAGE_PIXELS, open_image
from qwink.inputs.video import open_video
from qwink.server.failures import Failure
from qwink.server.shared_uploads import SharedUploads

SCHEME = "qwink:"
# Without an upload, a request is refused: then the store may take longer than for encoded images.
NEEDED_S = 1.0
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
    """The most recently used uploads, at most `max_bytes` in total. Thread-safe.

    Each belongs to the client that put it, and no other client finds it. `client` is what
    `auth.client_of` gives.
    """

    def __init__(
        self,
        max_bytes: int,
        max_image_pixels: int = MAX_IMAGE_PIXELS,
        shared: SharedUploads | None = None,
    ) -> None:
        """`shared` keeps them for several servers."""
        self._max_image_pixels, self._shared = max_image_pixels, shared
        self.cache: MemoryCache[Upload] = MemoryCache(max_bytes)
        self.hits = self.misses = 0

    def add(self, content: bytes, client: str) -> Upload:
        """Store a picture or video.

        Raises ImageError if it cannot be read, Failure if it is too large.
        """
        upload = self._open(content)
        if upload.nbytes > self.cache.max_bytes:
            limit = self.cache.max_bytes >> 20
            raise Failure(
                413,
                f"this file is larger than the {limit} MiB for uploads; send a smaller one",
                "image_too_large",
                "file",
            )
        self.cache.put(_place(upload.key, client), upload)
        if self._shared is not None:
            self._shared.put(upload.key, content, client)
        return upload

    def is_elsewhere(self, name: str, client: str) -> bool:
        """Whether `find` would look for this id in the shared store, and perhaps wait for it."""
        match = _KEY.fullmatch(name)
        return (
            self._shared is not None
            and match is not None
            and _place(match[1], client) not in self.cache
        )

    def find(self, name: str, client: str, patience_s: float = PATIENCE_S) -> Upload | None:
        """The client's picture with this id or hash, or None.

        Waits up to `patience_s` for the shared store.
        """
        match = _KEY.fullmatch(name)
        upload = self._find(match[1], client, patience_s) if match else None
        if upload is None:
            self.misses += 1
        else:
            self.hits += 1
        return upload

    def kept(self, key: str, client: str) -> Upload | None:
        """The client's picture with this hash, if it is in memory here."""
        return self.cache.get(_place(key, client))

    def _find(self, key: str, client: str, patience_s: float) -> Upload | None:
        upload = self.cache.get(_place(key, client))
        if upload is not None or self._shared is None:
            return upload
        content = self._shared.find(key, client, patience_s)
        if content is None:
            return None
        try:
            upload = self._open(content)
        except ImageError:  # this server takes fewer pixels than the one that had it
            return None
        self.cache.put(_place(key, client), upload)
        return upload

    def _open(self, content: bytes) -> Upload:
        key = hashlib.sha256(content).hexdigest()
        if is_video(content):
            video = open_video(content, self._max_image_pixels)
            return Upload(content, key, video.format, video.size, ())
        opened = open_image(content, self._max_image_pixels)
        return Upload(content, key, opened.format, opened.size, opened.warnings)


def _place(key: str, client: str) -> str:
    return f"{client}:{key}"
