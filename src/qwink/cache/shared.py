"""Encoded images in a store that several machines share, in the file format of `entry`.

An entry's name covers the image's key, so images of different models, sizes or kernels never mix.
The entry holds that name in place of the key, which has a hash of the picture. Nothing is
compressed: the low bits of activations are noise (docs/lab-notes.md).
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from qwink.cache.address import StoreOptions
from qwink.cache.embeddings import Expected
from qwink.cache.entry import Unusable, file_size, is_finite, pack, unpack
from qwink.cache.redis import RedisStore
from qwink.cache.seal import Seal
from qwink.settings import Settings
from qwink.types import EncodedImage


def open_store(settings: Settings, url: str | None = None) -> SharedImages | None:
    """The store at `url`, or that of the settings; None if there is none. Raises OptionError."""
    where = url or settings.store
    if not where:
        return None
    secret = settings.store_secret.encode("utf-8", "surrogateescape")
    return SharedImages.open(
        StoreOptions(where, settings.store_ttl, settings.store_entry_mb << 20, secret)
    )


class SharedImages:
    """Encoded images of a shared store. Safe to share between threads."""

    def __init__(self, store: RedisStore) -> None:
        """Raises OptionError if a secret is given and the package for encryption is missing."""
        self.store = store
        self._seal = Seal(store.options.secret)

    @classmethod
    def open(cls, options: StoreOptions) -> SharedImages:
        """Those of a new store. Raises OptionError."""
        return cls(RedisStore(options))

    def fetch(self, expected: Expected) -> Future[EncodedImage | None]:
        """The image, its arrays float16 and read-only; None if it is missing or unusable.

        The future never raises. Cancel it if the image is not needed any more.
        """
        name = self._seal.name("image", expected.key)
        stored = replace(expected, key=name)

        def read(data: bytes) -> EncodedImage:
            return replace(unpack(self._seal.unseal(name, data), stored), key=expected.key)

        return self.store.fetch(name, file_size(stored) + self._seal.overhead, read)

    def put(self, image: EncodedImage) -> None:
        """Keep a float16 image, in the background. Images with NaN or infinite values are not."""
        name = self._seal.name("image", image.key)
        stored = replace(image, key=name)

        def content() -> bytes:
            if not (is_finite(image.embeds) and is_finite(image.deepstack)):
                raise Unusable
            return self._seal.seal(name, pack(stored))

        size = file_size(Expected.of(stored)) + self._seal.overhead
        self.store.put(name, size, content)

    def close(self) -> None:
        """Close the store."""
        self.store.close()
