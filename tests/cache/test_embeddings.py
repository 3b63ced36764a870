"""Encoded images in memory and in a store, and how they are rounded."""

import numpy as np

from qwink.cache.embeddings import EmbeddingCache, EncoderOutput, Expected, as_float16
from qwink.types import EncodedImage, Grid

OUTPUT = EncoderOutput(width=8, num_taps=1, merge_size=2)
GRID = Grid(1, 4, 4)


class DictStore:
    """A store without a limit."""

    def __init__(self) -> None:
        self.images: dict[str, EncodedImage] = {}

    def get(self, expected: Expected) -> EncodedImage | None:
        image = self.images.get(expected.key)
        return image if image is not None and Expected.of(image) == expected else None

    def put(self, image: EncodedImage) -> None:
        self.images[image.key] = image


def image(key: str, value: float = 0.1) -> EncodedImage:
    embeds = np.full((4, 8), value, np.float32)
    return EncodedImage(embeds, embeds[None].copy(), GRID, key)


def test_what_is_put_is_what_is_got() -> None:
    cache = EmbeddingCache(1 << 20, OUTPUT)
    put, got = cache.put(image("a")), cache.get("a", GRID)
    assert got is put
    assert put.embeds.dtype == np.float16
    assert not put.embeds.flags.writeable
    assert cache.get("b", GRID) is None
    assert (cache.hits, cache.misses) == (1, 1)


def test_a_store_outlives_memory() -> None:
    store = DictStore()
    first = EmbeddingCache(1 << 20, OUTPUT, store)
    first.put(image("a"))
    first.close()
    fresh = EmbeddingCache(1 << 20, OUTPUT, store)
    assert fresh.get("a", GRID) is not None
    assert fresh.get("a", GRID) is not None
    assert (fresh.store_hits, fresh.hits, fresh.misses) == (1, 1, 0)


def test_memory_is_bounded() -> None:
    cache = EmbeddingCache(as_float16(image("a")).nbytes, OUTPUT)
    cache.put(image("a"))
    cache.put(image("b"))
    assert cache.get("a", GRID) is None
    assert cache.evictions == 1


def test_values_beyond_float16_are_clipped_not_infinite() -> None:
    rounded = as_float16(image("a", 1e6))
    assert float(rounded.embeds.max()) == float(np.finfo(np.float16).max)


def test_a_model_expects_tokens_by_the_grid() -> None:
    expected = EncoderOutput(2048, 3, 2).expect("a", Grid(1, 28, 14))
    assert expected == Expected("a", Grid(1, 28, 14), (98, 2048), (3, 98, 2048))
