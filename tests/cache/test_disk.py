"""The disk store: what comes back is what went in, or nothing."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwink.cache import disk
from qwink.cache.disk import DiskStore
from qwink.cache.embeddings import EmbeddingCache, as_float16
from qwink.types import EncodedImage, Grid

BIG = 1 << 30
SPAWN = multiprocessing.get_context("spawn")


def encoded(key: str = "a", seed: int = 0, tokens: int = 6, width: int = 8) -> EncodedImage:
    rng = np.random.default_rng(seed)
    embeds = rng.normal(size=(tokens, width)).astype(np.float16)
    deepstack = rng.normal(size=(3, tokens, width)).astype(np.float16)
    return EncodedImage(embeds, deepstack, Grid(1, 2 * tokens, 2), key)


def assert_same(found: EncodedImage | None, image: EncodedImage) -> None:
    assert found is not None
    assert found.key == image.key
    assert found.grid == image.grid
    for mine, theirs in ((found.embeds, image.embeds), (found.deepstack, image.deepstack)):
        assert mine.dtype == np.float16
        assert mine.shape == theirs.shape
        assert mine.tobytes() == theirs.tobytes()
        assert not mine.flags.writeable


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.qwink"))


def leftovers(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.tmp"))


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images"


# what goes in comes out


def test_an_image_outlives_the_store(folder: Path) -> None:
    image = encoded()
    first = DiskStore(folder, BIG)
    assert first.get("a") is None
    first.put(image)
    assert first.num_bytes == entries(folder)[0].stat().st_size
    again = DiskStore(folder, BIG)
    assert_same(again.get("a"), image)
    assert again.get("b") is None
    assert (again.hits, again.misses, again.num_bytes) == (1, 1, first.num_bytes)
    assert leftovers(folder) == []


@settings(max_examples=50, deadline=None)
@given(
    key=st.text(max_size=300),
    tokens=st.integers(0, 5),
    width=st.integers(0, 5),
    taps=st.integers(0, 3),
    grid=st.builds(Grid, *[st.integers(1, 1 << 20)] * 3),
    data=st.data(),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    key: str,
    tokens: int,
    width: int,
    taps: int,
    grid: Grid,
    data: Any,
) -> None:
    size = (1 + taps) * tokens * width * 2
    bits = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.float16)
    split = tokens * width  # any bits at all, NaN and infinity included
    image = EncodedImage(
        bits[:split].reshape(tokens, width),
        bits[split:].reshape(taps, tokens, width),
        grid,
        key,
    )
    folder = tmp_path_factory.mktemp("round")
    store = DiskStore(folder, BIG)
    store.put(image)
    assert_same(store.get(key), image)
    assert all(folder in path.parents for path in entries(folder))
    shutil.rmtree(folder)


def test_keys_cannot_leave_the_folder(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    keys = ("../../escape", "/etc/passwd", "a\0b", "", "x" * 5000, ".lock", "\udcff")
    for seed, key in enumerate(keys):
        store.put(encoded(key, seed))
    for seed, key in enumerate(keys):
        assert_same(store.get(key), encoded(key, seed))
    assert len(entries(folder)) == len(keys)
    assert [path.name for path in folder.parent.iterdir()] == ["images"]
    assert all(len(path.relative_to(folder).parts) == 3 for path in entries(folder))


def test_float32_is_rounded(folder: Path) -> None:
    image = EncodedImage(
        np.full((2, 2), 1e6, np.float32), np.ones((3, 2, 2), np.float32), Grid(1, 2, 4), "wide"
    )
    store = DiskStore(folder, BIG)
    store.put(image)
    assert_same(store.get("wide"), as_float16(image))


def test_behind_the_memory_cache(folder: Path) -> None:
    image = encoded()
    before = EmbeddingCache(BIG, DiskStore(folder, BIG))
    before.put(image)
    before.close()
    cache = EmbeddingCache(BIG, DiskStore(folder, BIG))
    assert_same(cache.get("a"), image)
    assert_same(cache.get("a"), image)
    assert (cache.store_hits, cache.hits, cache.misses) == (1, 1, 0)


# damage


def test_any_flipped_byte_is_found(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded(tokens=1, width=2))
    (path,) = entries(folder)
    sound = path.read_bytes()
    for at in range(len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 1 << (at % 8)
        path.write_bytes(damaged)
        assert store.get("a") is None, at
        assert not path.exists()
    assert store.dropped == store.misses == len(sound)
    path.write_bytes(sound)
    assert_same(store.get("a"), encoded(tokens=1, width=2))


def test_any_other_length_is_found(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded(tokens=1, width=2))
    (path,) = entries(folder)
    sound = path.read_bytes()
    for content in [sound[:length] for length in range(len(sound))] + [sound + b"\0", sound * 2]:
        path.write_bytes(content)
        assert store.get("a") is None, len(content)
        assert not path.exists()


def test_an_entry_under_anothers_name_is_dropped(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded("a"))
    (of_a,) = entries(folder)
    store.put(encoded("b"))
    (of_b,) = set(entries(folder)) - {of_a}
    shutil.copy(of_a, of_b)
    assert store.get("b") is None
    assert not of_b.exists()
    assert_same(store.get("a"), encoded("a"))


def forged(header: bytes, payload: bytes = b"") -> bytes:
    """A file whose checksum is right, whatever its header says."""
    import hashlib

    body = len(header).to_bytes(4, "little") + header + payload
    return b"QWINKEI1" + hashlib.blake2b(body, digest_size=32).digest() + body


@pytest.mark.parametrize(
    "content",
    [
        forged(b""),
        forged(b"[]"),
        forged(b"null"),
        forged(b"{}"),
        forged(b'{"key": "a", "grid": [1], "embeds": [0, 0], "deepstack": [0, 0, 0]}'),
        forged(b'{"key": "a", "grid": [1, 2, 3], "embeds": [9, 9], "deepstack": [3, 9, 9]}'),
        forged(
            b'{"key": "a", "grid": [1, 2, 3], "embeds": [-1, 1], "deepstack": [1, 1, 1]}', b"00"
        ),
        forged(b'{"key": "a", "grid": [1, 2, 3], "embeds": [0], "deepstack": [0, 0, 0]}'),
        forged(b'{"key": "a", "grid": [1, 2, 3], "embeds": ["x", 1], "deepstack": []}'),
        forged(b'{"key": "a", "grid": [1, 2, 3], "embeds": [0, 0], "deepstack": [0, 0, 0]}', b"0"),
    ],
)
def test_nonsense_with_a_right_checksum_is_dropped(folder: Path, content: bytes) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded())
    (path,) = entries(folder)
    path.write_bytes(content)
    assert store.get("a") is None
    assert (store.dropped, path.exists()) == (1, False)


# the bound


def entry_bytes(tmp_path: Path) -> int:
    store = DiskStore(tmp_path / "one", BIG)
    store.put(encoded("0"))
    return store.num_bytes


def test_least_recently_used_go_first(folder: Path, tmp_path: Path) -> None:
    size = entry_bytes(tmp_path)
    store = DiskStore(folder, 3 * size)
    known: set[Path] = set()
    for number, key in enumerate("012"):
        store.put(encoded(key))
        (new,) = set(entries(folder)) - known
        known.add(new)
        age(new, 100 - number)
    assert store.get("0") is not None  # used just now
    store.put(encoded("3"))
    assert store.num_bytes == 3 * size
    assert [key for key in "0123" if store.get(key)] == ["0", "2", "3"]
    assert store.evictions == 1


def test_putting_again_evicts_nobody(folder: Path, tmp_path: Path) -> None:
    store = DiskStore(folder, 2 * entry_bytes(tmp_path))
    for key in ("0", "1", "1", "1"):
        store.put(encoded(key))
    assert (len(entries(folder)), store.evictions) == (2, 0)
    assert store.num_bytes == store.max_bytes


def test_what_is_larger_than_the_store_is_not_kept(folder: Path, tmp_path: Path) -> None:
    size = entry_bytes(tmp_path)
    store = DiskStore(folder, size)
    store.put(encoded("0"))
    store.put(encoded("large", tokens=100))
    assert_same(store.get("0"), encoded("0"))
    assert store.get("large") is None


def test_a_smaller_store_shrinks_at_once(folder: Path, tmp_path: Path) -> None:
    size = entry_bytes(tmp_path)
    large = DiskStore(folder, BIG)
    for key in "01234":
        large.put(encoded(key))
    small = DiskStore(folder, 2 * size)
    assert (small.num_bytes, small.evictions, len(entries(folder))) == (2 * size, 3, 2)


# trouble with the disk


@pytest.fixture
def one_complaint(caplog: pytest.LogCaptureFixture) -> Callable[[], None]:
    caplog.set_level(logging.WARNING, "qwink")

    def check() -> None:
        assert len(caplog.records) == 1, caplog.text
        assert "image cache" in caplog.text

    return check


def test_full_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, one_complaint: Callable[[], None]
) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded("before"))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for key in "abc":
            store.put(encoded(key))
    assert leftovers(folder) == []
    assert store.get("a") is None
    assert_same(store.get("before"), encoded("before"))
    store.put(encoded("after"))
    assert_same(store.get("after"), encoded("after"))
    one_complaint()


@pytest.mark.parametrize("at", ["folder", "parent"])
def test_folder_that_cannot_be(tmp_path: Path, at: str, one_complaint: Callable[[], None]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    store = DiskStore(blocked if at == "folder" else blocked / "images", BIG)
    store.put(encoded())
    assert store.get("a") is None
    one_complaint()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root writes anywhere")
def test_read_only_folder_still_reads(folder: Path) -> None:
    DiskStore(folder, BIG).put(encoded())
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        store = DiskStore(folder, BIG)
        store.put(encoded("b"))
        assert_same(store.get("a"), encoded())
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)


def test_failing_reads_are_misses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, one_complaint: Callable[[], None]
) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded())

    def broken(_: Path) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", broken)
        assert store.get("a") is None
        assert store.get("a") is None
    assert_same(store.get("a"), encoded())
    one_complaint()


# several processes


def test_a_stopped_process_holds_nobody_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_LOCK_PATIENCE_S", 0.05)
    store, other = DiskStore(folder, BIG), DiskStore(folder, BIG)
    with other._exclusive() as mine:
        assert mine
        store.put(encoded())
    assert store.get("a") is None
    store.put(encoded())
    assert_same(store.get("a"), encoded())


def test_abandoned_files_are_removed_and_living_ones_kept(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded())
    (path,) = entries(folder)
    abandoned = path.with_name("x.tmp")
    abandoned.write_bytes(b"half")
    with store._temporary(path) as (_, living):
        store.put(encoded("b"))
        assert leftovers(folder) == [living]
    assert leftovers(folder) == []


def use_at_random(folder: Path, max_bytes: int, seed: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    store = DiskStore(folder, max_bytes)
    for _ in range(rounds):
        number = int(rng.integers(12))
        found = store.get(str(number))
        if found is None:
            store.put(encoded(str(number), number))
        else:
            assert_same(found, encoded(str(number), number))
    # Half were evicted by others, but never was one damaged.
    assert store.dropped == 0
    assert not store._complained


def test_processes_share_a_folder(folder: Path, tmp_path: Path) -> None:
    limit = 6 * entry_bytes(tmp_path)
    processes = [
        SPAWN.Process(target=use_at_random, args=(folder, limit, seed, 150)) for seed in range(3)
    ]
    for process in processes:
        process.start()
    watching = DiskStore(folder, limit)
    while any(process.is_alive() for process in processes):
        with watching._exclusive() as mine:  # the bound holds whenever nobody changes anything
            total = sum(path.stat().st_size for path in entries(folder))
        assert total <= limit or not mine
        time.sleep(0.02)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert sum(path.stat().st_size for path in entries(folder)) <= limit
    assert leftovers(folder) == []


def put_forever(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    number = 0
    while True:
        number += 1
        store.put(encoded(str(number % 5), number % 5, tokens=20_000))


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_killed_while_writing(folder: Path) -> None:
    for delay in (0.0, 0.02, 0.05):
        process = SPAWN.Process(target=put_forever, args=(folder,))
        process.start()
        while not folder.exists() or not leftovers(folder):
            time.sleep(0.001)
        time.sleep(delay)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        store = DiskStore(folder, BIG)
        assert leftovers(folder) == []
        for number in range(5):
            found = store.get(str(number))
            if found is not None:
                assert_same(found, encoded(str(number), number, tokens=20_000))
        assert store.dropped == 0
