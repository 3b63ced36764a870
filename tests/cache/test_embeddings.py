"""Two levels of encoded images, and the rounding that makes all answers equal."""

import numpy as np

from qwink.cache.embeddings import EmbeddingCache, as_float16
from qwink.types import EncodedImage, Grid


class DictStore:
    """A store that forgets nothing."""

    def __init__(self) -> None:
        self.images: dict[str, EncodedImage] = {}

    def get(self, key: str) -> EncodedImage | None:
        return self.images.get(key)

    def put(self, image: EncodedImage) -> None:
        self.images[image.key] = image


def image(key: str, value: float = 0.1) -> EncodedImage:
    embeds = np.full((4, 8), value, np.float32)
    return EncodedImage(embeds, embeds[None].copy(), Grid(1, 4, 4), key)


def test_what_is_put_is_what_is_got() -> None:
    cache = EmbeddingCache(1 << 20)
    put, got = cache.put(image("a")), cache.get("a")
    assert got is put
    assert put.embeds.dtype == np.float16
    assert not put.embeds.flags.writeable
    assert cache.get("b") is None
    assert (cache.hits, cache.misses) == (1, 1)


def test_a_store_outlives_memory() -> None:
    store = DictStore()
    first = EmbeddingCache(1 << 20, store)
    first.put(image("a"))
    first.close()
    fresh = EmbeddingCache(1 << 20, store)
    assert fresh.get("a") is not None
    assert fresh.get("a") is not None
    assert (fresh.store_hits, fresh.hits, fresh.misses) == (1, 1, 0)


def test_memory_is_bounded() -> None:
    cache = EmbeddingCache(as_float16(image("a")).nbytes)
    cache.put(image("a"))
    cache.put(image("b"))
    assert cache.get("a") is None
    assert cache.evictions == 1


def test_values_beyond_float16_are_clipped_not_infinite() -> None:
    rounded = as_float16(image("a", 1e6))
    assert float(rounded.embeds.max()) == float(np.finfo(np.float16).max)
