"""Encoded images by content: in memory, and on disk if a store is given.

Arrays are kept as float16, which halves them. An image is rounded when it is first put, so that
the first answer and all later ones see the same numbers, from whichever place they come.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from qwink.cache.memory import MemoryCache
from qwink.types import EncodedImage


class Store(Protocol):
    """Where encoded images outlive the process."""

    def get(self, key: str) -> EncodedImage | None: ...

    def put(self, image: EncodedImage) -> None: ...


class EmbeddingCache:
    """Two levels: memory, bounded in bytes, before an optional store."""

    def __init__(self, max_bytes: int, store: Store | None = None) -> None:
        self._memory: MemoryCache[EncodedImage] = MemoryCache(max_bytes)
        self._store = store
        # The store syncs to disk; whoever waits for an answer should not wait for that.
        self._writer = ThreadPoolExecutor(1, "qwink-store") if store else None
        self.hits = self.store_hits = self.misses = 0

    @property
    def num_bytes(self) -> int:
        return self._memory.num_bytes

    @property
    def evictions(self) -> int:
        return self._memory.evictions

    def get(self, key: str) -> EncodedImage | None:
        """The image, its arrays as float16."""
        image = self._memory.get(key)
        if image is not None:
            self.hits += 1
            return image
        image = self._store.get(key) if self._store else None
        if image is None:
            self.misses += 1
            return None
        self.store_hits += 1
        self._memory.put(key, image)
        return image

    def put(self, image: EncodedImage) -> EncodedImage:
        """Keep an image; returns it as `get` will."""
        kept = as_float16(image)
        self._memory.put(kept.key, kept)
        if self._store is not None and self._writer is not None:
            self._writer.submit(self._store.put, kept)
        return kept

    def close(self) -> None:
        """Wait until the store has everything. Nothing may be put afterwards."""
        if self._writer is not None:
            self._writer.shutdown()


def as_float16(image: EncodedImage) -> EncodedImage:
    """Rounded to float16; what is beyond its range becomes its largest value."""
    largest = float(np.finfo(np.float16).max)
    arrays = []
    for values in (image.embeds, image.deepstack):
        rounded = np.clip(values, -largest, largest).astype(np.float16)
        rounded.flags.writeable = False
        arrays.append(rounded)
    return EncodedImage(arrays[0], arrays[1], image.grid, image.key)
