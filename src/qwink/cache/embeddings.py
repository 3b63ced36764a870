"""Encoded images by content: in memory, and on disk if a store is given.

Arrays are kept as float16, which halves them. An image is rounded when it is first put, so that
every answer uses the same numbers, whichever cache they come from.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from qwink.cache.memory import MemoryCache
from qwink.types import EncodedImage, Grid


@dataclass(frozen=True, slots=True)
class Expected:
    """The image that a model needs: its key, its grid and the shapes of its arrays."""

    key: str
    grid: Grid
    embeds: tuple[int, ...]  # (V, D)
    deepstack: tuple[int, ...]  # (num taps, V, D)

    @classmethod
    def of(cls, image: EncodedImage) -> Expected:
        """What describes an image that is there."""
        return cls(image.key, image.grid, image.embeds.shape, image.deepstack.shape)


@dataclass(frozen=True, slots=True)
class EncoderOutput:
    """Sizes of what a model's encoder gives: hidden size, deepstack taps, patches' merge side."""

    width: int
    num_taps: int
    merge_size: int

    def expect(self, key: str, grid: Grid) -> Expected:
        """The encoded image of a picture with this key and grid."""
        num_tokens = grid.num_patches // self.merge_size**2
        embeds = num_tokens, self.width
        return Expected(key, grid, embeds, (self.num_taps, *embeds))


class Store(Protocol):
    """Where encoded images outlive the process."""

    def get(self, expected: Expected) -> EncodedImage | None:
        """The image if it is kept and is as expected; float16."""

    def put(self, image: EncodedImage) -> None: ...


class EmbeddingCache:
    """Two levels: memory, bounded in bytes, before an optional store."""

    def __init__(self, max_bytes: int, output: EncoderOutput, store: Store | None = None) -> None:
        """`output` is what the model takes: the store gives nothing else."""
        self._memory: MemoryCache[EncodedImage] = MemoryCache(max_bytes)
        self._output = output
        self._store = store
        # Writing to the store takes long, so it happens in a thread of its own.
        self._writer = ThreadPoolExecutor(1, "qwink-store") if store else None
        self.hits = self.store_hits = self.misses = 0

    @property
    def num_bytes(self) -> int:
        return self._memory.num_bytes

    @property
    def evictions(self) -> int:
        return self._memory.evictions

    def __contains__(self, key: object) -> bool:
        """Whether memory has the image. Counts neither as a hit nor as a miss."""
        return key in self._memory

    def get(self, key: str, grid: Grid) -> EncodedImage | None:
        """The image with this key, whose picture has this grid; its arrays are float16."""
        image = self._memory.get(key)
        if image is not None:
            self.hits += 1
            return image
        image = self._store.get(self._output.expect(key, grid)) if self._store else None
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
        """Wait until the store has written everything, and empty the memory.

        Nothing may be put afterwards.
        """
        if self._writer is not None:
            self._writer.shutdown()
        self._memory.clear()


def as_float16(image: EncodedImage) -> EncodedImage:
    """Rounded to float16; values beyond its range are clipped to it. The arrays are read-only."""
    largest = float(np.finfo(np.float16).max)
    arrays = []
    for values in (image.embeds, image.deepstack):
        rounded = np.clip(values, -largest, largest).astype(np.float16)
        rounded.flags.writeable = False
        arrays.append(rounded)
    return EncodedImage(arrays[0], arrays[1], image.grid, image.key)
