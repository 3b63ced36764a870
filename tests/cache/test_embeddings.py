"""Encoded images in memory and in stores, and how they are rounded."""

from concurrent.futures import Future
from dataclasses import replace

import numpy as np

from qwink.cache.embeddings import PATIENCE_S, EmbeddingCache, EncoderOutput, Expected, as_float16
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


class SlowStore:
    """A shared store whose images arrive when the test says so."""

    def __init__(self) -> None:
        self.fetches: dict[str, Future[EncodedImage | None]] = {}
        self.images: list[EncodedImage] = []

    def fetch(self, expected: Expected) -> Future[EncodedImage | None]:
        assert expected.key not in self.fetches, "it was asked for twice"
        return self.fetches.setdefault(expected.key, Future())

    def put(self, image: EncodedImage) -> None:
        self.images.append(image)

    def close(self) -> None:
        self.images.clear()


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


def test_images_of_a_shared_store_arrive_when_they_do() -> None:
    shared, arrivals = SlowStore(), []
    cache = EmbeddingCache(1 << 20, OUTPUT, shared=shared, clock=lambda: 7.0)
    cache.on_arrival = lambda: arrivals.append("a")
    cache.prefetch("a", GRID)
    cache.prefetch("a", GRID)
    assert cache.awaited_until("a") == 7.0 + PATIENCE_S
    assert cache.num_fetches == 1
    assert cache.get("a", GRID) is None
    assert not arrivals
    kept = as_float16(image("a"))
    shared.fetches["a"].set_result(kept)
    assert arrivals == ["a"]
    assert (cache.num_fetches, cache.awaited_until("a")) == (0, 0.0)
    found = cache.get("a", GRID)
    assert found is not None
    assert found.embeds is kept.embeds
    assert not shared.images


def test_an_image_that_is_not_shared_is_waited_for_no_longer() -> None:
    shared = SlowStore()
    cache = EmbeddingCache(1 << 20, OUTPUT, shared=shared)
    cache.prefetch("a", GRID)
    shared.fetches["a"].set_result(None)
    assert cache.awaited_until("a") == 0.0
    assert cache.get("a", GRID) is None


def test_a_fetch_is_cancelled_when_the_image_was_encoded_first() -> None:
    shared = SlowStore()
    cache = EmbeddingCache(1 << 20, OUTPUT, shared=shared)
    cache.prefetch("a", GRID)
    cache.wait("a")  # returns, though nothing comes
    cache.put(image("a"))
    assert shared.fetches["a"].cancelled()
    assert cache.num_fetches == 0
    assert [one.key for one in shared.images] == ["a"]


def test_the_store_of_this_machine_is_read_first() -> None:
    shared, store = SlowStore(), DictStore()
    first = EmbeddingCache(1 << 20, OUTPUT, store, shared)
    first.put(image("a"))
    first.close()
    cache = EmbeddingCache(1 << 20, OUTPUT, store, shared)
    cache.prefetch("a", GRID)
    assert not shared.fetches
    assert cache.get("a", GRID) is not None
    cache.prefetch("b", GRID)
    assert set(shared.fetches) == {"b"}
    assert cache.store_hits == 1


def test_stores_keep_images_of_other_numerics_apart() -> None:
    store, shared = DictStore(), SlowStore()
    amx = EmbeddingCache(1 << 20, replace(OUTPUT, numerics="amx"), store, shared)
    amx.put(image("a"))
    assert [one.key for one in shared.images] == ["a-amx"]
    amx.close()
    assert set(store.images) == {"a-amx"}
    again = EmbeddingCache(1 << 20, replace(OUTPUT, numerics="amx"), store)
    found = again.get("a", GRID)
    assert found is not None
    assert found.key == "a"
    assert EmbeddingCache(1 << 20, replace(OUTPUT, numerics="avx2"), store).get("a", GRID) is None
