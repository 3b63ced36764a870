"""Encoded images in a real Redis: the right one comes back to the last bit, or none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from qwink.cache.address import StoreOptions
from qwink.cache.embeddings import EmbeddingCache, EncoderOutput, Expected
from qwink.cache.shared import SharedImages
from qwink.lab.store.server import RedisServer
from qwink.types import EncodedImage, Grid
from tests import stores
from tests.stores import encoded, same

OUTPUT = EncoderOutput(width=8, num_taps=3, merge_size=2)
SECRET = b"a secret"


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with stores.start(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(common: RedisServer) -> RedisServer:
    stores.client(common).flushall()
    return common


@pytest.fixture(params=[b"", SECRET], ids=["plain", "secret"])
def images(request: pytest.FixtureRequest, server: RedisServer) -> Iterator[SharedImages]:
    opened = SharedImages.open(StoreOptions(server.url, secret=request.param))
    yield opened
    opened.close()


def get(images: SharedImages, expected: Expected) -> EncodedImage | None:
    return images.fetch(expected).result(stores.PATIENCE_S)


def put(images: SharedImages, image: EncodedImage) -> None:
    before = sum(images.store.writes.values())
    images.put(image)
    stores.until(lambda: sum(images.store.writes.values()) > before)


def cache_of(server: RedisServer, output: EncoderOutput) -> EmbeddingCache:
    return EmbeddingCache(1 << 20, output, None, SharedImages.open(StoreOptions(server.url)))


def names(server: RedisServer) -> list[bytes]:
    found: list[bytes] = stores.client(server).keys()  # type: ignore[assignment]
    return sorted(found)


def test_an_image_comes_back_on_another_machine(images: SharedImages, server: RedisServer) -> None:
    image = encoded("picture-a")
    put(images, image)
    other = SharedImages.open(images.store.options)
    found = get(other, Expected.of(image))
    assert same(found, image)
    assert found is not None
    assert not found.embeds.flags.writeable
    assert get(other, Expected.of(encoded("picture-b"))) is None
    other.close()


def test_what_others_can_see(images: SharedImages, server: RedisServer) -> None:
    """Without a secret a hash, from which one can only test a guess; with one, nothing."""
    image = encoded("picture-a")
    put(images, image)
    (name,) = names(server)
    content = stores.client(server).get(name)
    assert isinstance(content, bytes)
    assert b"picture-a" not in content + name
    plain = images.store.options.secret == b""
    assert (hashlib.sha256(b"picture-a").hexdigest().encode() in name) == plain
    assert (image.embeds.tobytes() in content) == plain


def test_models_sizes_and_secrets_never_mix(images: SharedImages, server: RedisServer) -> None:
    image = encoded("picture-one model")
    put(images, image)
    wanted = Expected.of(image)
    for other in (
        replace(wanted, key="picture-another model"),
        replace(wanted, grid=Grid(1, 2, 12)),
        replace(wanted, embeds=(6, 4), deepstack=(6, 6, 4)),  # as many values
        replace(wanted, deepstack=(3, 8, 6)),
        replace(wanted, embeds=(7, 8)),
    ):
        assert get(images, other) is None
    stranger = SharedImages.open(replace(images.store.options, secret=b"another"))
    assert get(stranger, wanted) is None
    stranger.close()
    assert same(get(images, wanted), image)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"x",
    "half": lambda data: data[: len(data) // 2],
    "bit": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "start": lambda data: b"X" + data[1:],
    "noise": lambda data: np.random.default_rng(0).bytes(len(data)),
    "huge": lambda data: data * 1000,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_entries_are_never_used(
    images: SharedImages, server: RedisServer, kind: str
) -> None:
    image = encoded("a")
    put(images, image)
    (name,) = names(server)
    looking = stores.client(server)
    data = looking.get(name)
    assert isinstance(data, bytes)
    looking.set(name, DAMAGE[kind](data))
    assert get(images, Expected.of(image)) is None
    assert images.store.reads["miss" if kind == "empty" else "damaged"] == 1
    put(images, image)
    assert same(get(images, Expected.of(image)), image)


def test_an_entry_under_the_name_of_another_is_not_used(
    images: SharedImages, server: RedisServer
) -> None:
    looking = stores.client(server)
    put(images, encoded("a"))
    (first,) = names(server)
    put(images, encoded("b", seed=1))
    (second,) = set(names(server)) - {first}
    looking.copy(first.decode(), second.decode(), replace=True)
    assert get(images, Expected.of(encoded("b"))) is None
    assert images.store.reads["damaged"] == 1


def test_values_that_are_no_numbers_are_not_kept(images: SharedImages, server: RedisServer) -> None:
    image = encoded("a")
    image.embeds[0, 0] = np.inf
    put(images, image)
    assert images.store.writes["refused"] == 1
    assert names(server) == []


def test_two_caches_share_an_image(server: RedisServer) -> None:
    """As in two processes: one encodes, the other finds it before it would."""
    caches = [cache_of(server, OUTPUT) for _ in range(2)]
    image = encoded("a")
    caches[0].put(image)
    stores.until(lambda: names(server))
    caches[1].prefetch("a", image.grid)
    caches[1].wait("a")
    stores.until(lambda: not caches[1].num_fetches)
    assert same(caches[1].get("a", image.grid), image)
    for cache in caches:
        cache.close()


def test_kernels_that_round_differently_do_not_share(server: RedisServer) -> None:
    outputs = [replace(OUTPUT, numerics=kernels) for kernels in ("amx", "avx2", "amx")]
    caches = [cache_of(server, output) for output in outputs]
    image = encoded("a")
    caches[0].put(image)
    stores.until(lambda: names(server))
    found = []
    for cache in caches[1:]:
        cache.prefetch("a", image.grid)
        stores.until(lambda cache=cache: not cache.num_fetches)  # type: ignore[misc]
        found.append(cache.get("a", image.grid))
    assert found[0] is None
    assert same(found[1], image)
    for cache in caches:
        cache.close()
