"""Encoded images by content: in memory, and in stores if they are given.

A store of this machine, such as the disk, answers at once. One that machines share may be slow, so
an image is fetched from it as soon as its picture is prepared (`prefetch`), and nobody is kept
waiting: `awaited_until` says for how long the encoder may wait, and an image that arrives later is
there as soon as it has arrived.

Arrays are kept as float16, which halves them. An image is rounded when it is first put, so that
every answer uses the same numbers, whichever cache they come from.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from qwink.cache.memory import MemoryCache
from qwink.types import EncodedImage, Grid

# For how long the encoder may wait for an image of the shared store. The store may delay an answer
# by 50 ms; after a wait, threads and caches of the processor are cold, which takes up to 20 ms.
PATIENCE_S = 0.025


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
    """Sizes of what a model's encoder gives: hidden size, deepstack taps, patches' merge side.

    `numerics` names what else decides the last bits, such as the kernels. Stores keep images of
    different numerics apart.
    """

    width: int
    num_taps: int
    merge_size: int
    numerics: str = ""

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


class Shared(Protocol):
    """A store that other machines use too."""

    def fetch(self, expected: Expected) -> Future[EncodedImage | None]:
        """The image as `Store.get` gives it. Never raises; cancelled if it is not needed."""

    def put(self, image: EncodedImage) -> None:
        """Returns at once."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Fetch:
    """An image on its way from the shared store; `until` is when patience with it ends."""

    image: Future[EncodedImage | None]
    until: float


class EmbeddingCache:
    """Memory, bounded in bytes, before an optional store and an optional shared store."""

    def __init__(
        self,
        max_bytes: int,
        output: EncoderOutput,
        store: Store | None = None,
        shared: Shared | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`output` is what the model takes: the stores give nothing else."""
        self._memory: MemoryCache[EncodedImage] = MemoryCache(max_bytes)
        self._output = output
        self._store, self.shared = store, shared
        self._clock = clock
        # Writing to the store takes long, so it happens in a thread of its own.
        self._writer = ThreadPoolExecutor(1, "qwink-store") if store else None
        self._fetches: dict[str, _Fetch] = {}
        self._lock = threading.Lock()
        self.on_arrival: Callable[[], None] = lambda: None
        """Called from any thread when an image was fetched, or cannot be."""
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

    def prefetch(self, key: str, grid: Grid) -> None:
        """Begin to fetch an image that will be needed, if there is a shared store.

        Reads the other store first. Returns without waiting for the shared one.
        """
        if self.shared is None or key in self._memory or key in self._fetches:
            return
        if self._read_store(key, grid) is not None:
            return
        fetch = _Fetch(self.shared.fetch(self._expect(key, grid)), self._clock() + PATIENCE_S)
        with self._lock:
            other = self._fetches.setdefault(key, fetch)
        if other is not fetch:
            return
        fetch.image.add_done_callback(lambda _: self._arrived(key, fetch))

    @property
    def num_fetches(self) -> int:
        """Images on their way from the shared store."""
        return len(self._fetches)

    def awaited_until(self, key: str) -> float:
        """When to stop waiting for an image that is being fetched, on the clock of `monotonic`.

        0.0 if it is not being fetched.
        """
        fetch = self._fetches.get(key)
        return 0.0 if fetch is None else fetch.until

    def wait(self, key: str) -> None:
        """Wait for an image that is being fetched, no longer than `awaited_until`."""
        fetch = self._fetches.get(key)
        if fetch is not None:
            wait([fetch.image], max(0.0, fetch.until - self._clock()))

    def get(self, key: str, grid: Grid) -> EncodedImage | None:
        """The image with this key, whose picture has this grid; its arrays are float16.

        Does not wait for the shared store.
        """
        image = self._memory.get(key)
        if image is not None:
            self.hits += 1
            return image
        image = None if key in self._fetches else self._read_store(key, grid)
        if image is None:
            self.misses += 1
        return image

    def put(self, image: EncodedImage) -> EncodedImage:
        """Keep an image; returns it as `get` will."""
        kept = as_float16(image)
        self._memory.put(kept.key, kept)
        with self._lock:
            fetch = self._fetches.pop(kept.key, None)
        if fetch is not None:
            fetch.image.cancel()
        stored = replace(kept, key=self._stored_key(kept.key))
        if self._store is not None and self._writer is not None:
            self._writer.submit(self._store.put, stored)
        if self.shared is not None:
            self.shared.put(stored)
        return kept

    def close(self) -> None:
        """Wait until the store has written everything, and empty the memory.

        The shared store gets a short time only. Nothing may be put afterwards.
        """
        if self._writer is not None:
            self._writer.shutdown()
        if self.shared is not None:
            self.shared.close()
        self.on_arrival = lambda: None
        self._memory.clear()

    def _stored_key(self, key: str) -> str:
        return f"{key}-{self._output.numerics}" if self._output.numerics else key

    def _expect(self, key: str, grid: Grid) -> Expected:
        return self._output.expect(self._stored_key(key), grid)

    def _read_store(self, key: str, grid: Grid) -> EncodedImage | None:
        image = self._store.get(self._expect(key, grid)) if self._store else None
        if image is None:
            return None
        self.store_hits += 1
        image = replace(image, key=key)
        self._memory.put(key, image)
        return image

    def _arrived(self, key: str, fetch: _Fetch) -> None:
        """In the thread of the shared store, or in that of `prefetch`."""
        image = None if fetch.image.cancelled() else fetch.image.result()
        if image is not None:
            self._memory.put(key, replace(image, key=key))
        with self._lock:
            if self._fetches.get(key) is fetch:
                del self._fetches[key]
        self.on_arrival()


def as_float16(image: EncodedImage) -> EncodedImage:
    """Rounded to float16; values beyond its range are clipped to it. The arrays are read-only."""
    largest = float(np.finfo(np.float16).max)
    arrays = []
    for values in (image.embeds, image.deepstack):
        rounded = np.clip(values, -largest, largest).astype(np.float16)
        rounded.flags.writeable = False
        arrays.append(rounded)
    return EncodedImage(arrays[0], arrays[1], image.grid, image.key)
