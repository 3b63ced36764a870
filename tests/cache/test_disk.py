"""The disk store returns what was put into it, or nothing."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import Timeout
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qwink.cache import disk
from qwink.cache.disk import DiskStore
from qwink.cache.embeddings import EmbeddingCache, EncoderOutput, Expected, as_float16
from qwink.types import EncodedImage, Grid

BIG = 1 << 30
OUTPUT = EncoderOutput(width=8, num_taps=3, merge_size=2)
SPAWN = multiprocessing.get_context("spawn")


def encoded(key: str = "a", seed: int = 0, tokens: int = 6, width: int = 8) -> EncodedImage:
    rng = np.random.default_rng(seed)
    embeds = rng.normal(size=(tokens, width)).astype(np.float16)
    deepstack = rng.normal(size=(3, tokens, width)).astype(np.float16)
    return EncodedImage(embeds, deepstack, Grid(1, 2 * tokens, 2), key)


def expected(key: str = "a", tokens: int = 6, width: int = 8) -> Expected:
    """What a model whose image is `encoded(key, ...)` asks for."""
    return Expected.of(encoded(key, 0, tokens, width))


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
    assert first.get(expected("a")) is None
    first.put(image)
    assert first.num_bytes == entries(folder)[0].stat().st_size
    again = DiskStore(folder, BIG)
    assert_same(again.get(expected("a")), image)
    assert again.get(expected("b")) is None
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
    bits = np.where(np.isfinite(bits), bits, np.float16(-0.0))
    split = tokens * width
    image = EncodedImage(
        bits[:split].reshape(tokens, width),
        bits[split:].reshape(taps, tokens, width),
        grid,
        key,
    )
    folder = tmp_path_factory.mktemp("round")
    store = DiskStore(folder, BIG)
    store.put(image)
    assert_same(store.get(Expected.of(image)), image)
    assert all(folder in path.parents for path in entries(folder))
    shutil.rmtree(folder)


def test_keys_cannot_leave_the_folder(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    keys = ("../../escape", "/etc/passwd", "a\0b", "", "x" * 5000, ".lock", "\udcff")
    for seed, key in enumerate(keys):
        store.put(encoded(key, seed))
    for seed, key in enumerate(keys):
        assert_same(store.get(expected(key)), encoded(key, seed))
    assert len(entries(folder)) == len(keys)
    assert [path.name for path in folder.parent.iterdir()] == ["images"]
    assert all(len(path.relative_to(folder).parts) == 3 for path in entries(folder))


def test_float32_is_rounded(folder: Path) -> None:
    image = EncodedImage(
        np.full((2, 2), 1e6, np.float32), np.ones((3, 2, 2), np.float32), Grid(1, 2, 4), "wide"
    )
    store = DiskStore(folder, BIG)
    store.put(image)
    assert_same(store.get(Expected.of(image)), as_float16(image))


def test_behind_the_memory_cache(folder: Path) -> None:
    image = encoded()
    before = EmbeddingCache(BIG, OUTPUT, DiskStore(folder, BIG))
    before.put(image)
    before.close()
    cache = EmbeddingCache(BIG, OUTPUT, DiskStore(folder, BIG))
    assert_same(cache.get("a", image.grid), image)
    assert_same(cache.get("a", image.grid), image)
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
        assert store.get(expected("a", 1, 2)) is None, at
        assert not path.exists()
    assert store.dropped == store.misses == len(sound)
    path.write_bytes(sound)
    assert_same(store.get(expected("a", 1, 2)), encoded(tokens=1, width=2))


def test_any_other_length_is_found(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded(tokens=1, width=2))
    (path,) = entries(folder)
    sound = path.read_bytes()
    for content in [sound[:length] for length in range(len(sound))] + [sound + b"\0", sound * 2]:
        path.write_bytes(content)
        assert store.get(expected("a", 1, 2)) is None, len(content)
        assert not path.exists()


def test_an_entry_under_anothers_name_is_dropped(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded("a"))
    (of_a,) = entries(folder)
    store.put(encoded("b"))
    (of_b,) = set(entries(folder)) - {of_a}
    shutil.copy(of_a, of_b)
    assert store.get(expected("b")) is None
    assert not of_b.exists()
    assert_same(store.get(expected("a")), encoded("a"))


VALUES = encoded().embeds.tobytes() + encoded().deepstack.tobytes()
HEADER = {"key": "a", "grid": [1, 12, 2], "embeds": [6, 8], "deepstack": [3, 6, 8]}


def forged(header: bytes, payload: bytes = VALUES, length: int | None = None) -> bytes:
    """A file whose checksum is right, whatever its header says."""
    stated = len(header) if length is None else length
    body = stated.to_bytes(4, "little") + header + payload
    return b"QWINKEI1" + hashlib.blake2b(body, digest_size=32).digest() + body


def padded(header: bytes) -> bytes:
    """A header padded to the length of the right one, as far as it is shorter."""
    right = len(json.dumps(HEADER))
    return header.ljust(right + -(44 + right) % 64)


def changed(**fields: Any) -> bytes:
    return padded(json.dumps(HEADER | fields).encode())


def assert_dropped_and_made_anew(folder: Path, content: bytes, wanted: Expected) -> None:
    store = DiskStore(folder, BIG)
    image = EncodedImage(
        np.ones(wanted.embeds, np.float16),
        np.ones(wanted.deepstack, np.float16),
        wanted.grid,
        wanted.key,
    )
    path = store._path(wanted.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    assert store.get(wanted) is None
    assert not path.exists()
    assert (store.dropped, store.misses) == (1, 1)
    store.put(image)
    assert_same(store.get(wanted), image)


def test_the_forger_knows_the_format(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded())
    (path,) = entries(folder)
    assert path.read_bytes() == forged(changed())


INFINITE = np.full(1, np.inf, np.float16).tobytes() + VALUES[2:]
NOT_A_NUMBER = VALUES[:-2] + np.full(1, np.nan, np.float16).tobytes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"QWINKEI1",
        forged(b"", b""),
        forged(b""),
        forged(padded(b"")),
        forged(padded(b"[]")),
        forged(padded(b"null")),
        forged(padded(b"{}")),
        forged(b"[" * 200_000),
        forged(b"[" * len(padded(b""))),
        forged(b'{"key":' * 50_000),
        forged(b"9" * 100_000),
        forged(changed(grid=[10**60, 1, 1])),
        forged(changed(grid=[1, 2])),
        forged(changed(grid=[1, 2, 12])),
        forged(changed(grid=["1", "12", "2"])),
        forged(changed(embeds=[10**30, 8])),
        forged(changed(embeds=[2**62, 4])),
        forged(changed(embeds=[-6, -8])),
        forged(changed(embeds=[8, 6])),
        forged(changed(embeds=[12, 4], deepstack=[3, 12, 4])),
        forged(changed(embeds=[6.0, 8.0])),
        forged(changed(embeds=[float("nan"), float("inf")])),
        forged(changed(embeds=[True, 48])),
        forged(changed(embeds=[48], deepstack=[144])),
        forged(changed(deepstack=[-1, -6, 24])),
        forged(changed(deepstack=[])),
        forged(changed(key="b")),
        forged(changed(key=None)),
        forged(changed(dtype="float32")),
        forged(changed()[:-1], VALUES + b"0"),
        forged(changed(), length=0),
        forged(changed(), length=2**32 - 1),
        forged(changed(), VALUES[:-1]),
        forged(changed(), VALUES[:-2]),
        forged(changed(), VALUES + b"00"),
        forged(changed(), VALUES * 2),  # float32
        forged(changed(), INFINITE),
        forged(changed(), NOT_A_NUMBER),
        b"QWINKEI0" + forged(changed())[8:],
    ],
)
def test_crafted_files_are_dropped_and_made_anew(folder: Path, content: bytes) -> None:
    assert_dropped_and_made_anew(folder, content, expected())


@pytest.mark.parametrize(
    "wanted",
    [
        Expected("a", Grid(1, 12, 2), (6, 4), (3, 6, 4)),  # another width
        Expected("a", Grid(1, 12, 2), (12, 4), (3, 12, 4)),  # of the same size
        Expected("a", Grid(1, 12, 2), (6, 8), (2, 6, 8)),  # other taps
        Expected("a", Grid(1, 4, 6), (6, 8), (3, 6, 8)),  # another grid
        Expected("a", Grid(1, 12, 4), (12, 8), (3, 12, 8)),  # more tokens
    ],
)
def test_what_another_model_needs_is_dropped(folder: Path, wanted: Expected) -> None:
    assert_dropped_and_made_anew(folder, forged(changed()), wanted)


def test_the_cache_asks_for_what_its_model_takes(folder: Path) -> None:
    DiskStore(folder, BIG).put(encoded())
    store = DiskStore(folder, BIG)
    cache = EmbeddingCache(BIG, EncoderOutput(width=4, num_taps=3, merge_size=2), store)
    assert cache.get("a", encoded().grid) is None
    assert (store.dropped, cache.store_hits, entries(folder)) == (1, 0, [])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
headers = st.one_of(
    st.binary(max_size=200),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(sorted(HEADER)), json_values, min_size=1).map(
        lambda fields: json.dumps(HEADER | fields).encode()
    ),
    st.fixed_dictionaries(
        {name: st.lists(st.integers(-2, 20) | st.integers(), max_size=4) for name in HEADER}
    ).map(lambda fields: json.dumps(HEADER | fields | {"key": "a"}).encode()),
)


@settings(max_examples=300, deadline=None)
@given(header=headers, payload=st.just(VALUES) | st.binary(max_size=64), pad=st.booleans())
def test_any_crafted_header_is_dropped_and_made_anew(
    tmp_path_factory: pytest.TempPathFactory, header: bytes, payload: bytes, pad: bool
) -> None:
    content = forged(padded(header) if pad else header, payload)
    assume(content != forged(changed()))
    folder = tmp_path_factory.mktemp("crafted")
    assert_dropped_and_made_anew(folder, content, expected())
    shutil.rmtree(folder)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def full_folder(path: Path) -> None:
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "file").write_text("in the way")


def loop(path: Path) -> None:
    path.symlink_to(path)


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def link_to_a_sound_file(path: Path) -> None:
    target = path.parents[3] / "elsewhere"
    target.write_bytes(forged(changed()))
    path.symlink_to(target)


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def unreadable(path: Path) -> None:
    path.write_bytes(forged(changed()))
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads anything")


def endpoint(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        short = path.parents[3] / "s"
        listener.bind(os.fspath(short))
        short.rename(path)


@pytest.mark.skipif(sys.platform == "win32", reason="needs links, pipes and permissions")
@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir, full_folder, fifo, loop, dangling, link_to_a_sound_file, link_to_a_device,
        unreadable, endpoint,
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", ["get", "put"])
def test_what_is_no_file_is_removed(
    folder: Path, make: Callable[[Path], None], first: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = DiskStore(folder, BIG)
    path = store._path("a")
    path.parent.mkdir(parents=True)
    make(path)
    if first == "get":
        assert store.get(expected()) is None
        assert not os.path.lexists(path)
        assert store.dropped == 1
    store.put(encoded())
    assert_same(store.get(expected()), encoded())
    assert "cannot" not in caplog.text


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("kind", ["file", "dangling link", "link to a folder"])
@pytest.mark.parametrize("first", ["get", "put"])
def test_what_is_no_folder_is_removed(folder: Path, level: int, kind: str, first: str) -> None:
    store = DiskStore(folder, BIG)
    parent = store._path("a").parents[level]
    parent.parent.mkdir(parents=True, exist_ok=True)
    if kind == "file":
        parent.write_text("in the way")
    else:
        parent.symlink_to(folder if kind == "link to a folder" else folder / "nothing")
    if first == "get":
        assert store.get(expected()) is None
    store.put(encoded())
    assert_same(store.get(expected()), encoded())
    assert not parent.is_symlink()


def test_values_that_are_not_finite_are_not_kept(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    for array, value in (("embeds", np.nan), ("deepstack", np.inf)):
        image = encoded()
        getattr(image, array)[-1, -1] = value
        store.put(image)
        assert store.get(expected()) is None
    assert (store.dropped, entries(folder)) == (0, [])


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
    assert store.get(expected("0")) is not None  # used just now
    store.put(encoded("3"))
    assert store.num_bytes == 3 * size
    assert [key for key in "0123" if store.get(expected(key))] == ["0", "2", "3"]
    assert store.evictions == 1


def test_putting_again_evicts_nothing(folder: Path, tmp_path: Path) -> None:
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
    assert_same(store.get(expected("0")), encoded("0"))
    assert store.get(expected("large")) is None


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

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        for key in "abc":
            store.put(encoded(key))
    assert leftovers(folder) == []
    assert store.get(expected("a")) is None
    assert_same(store.get(expected("before")), encoded("before"))
    store.put(encoded("after"))
    assert_same(store.get(expected("after")), encoded("after"))
    one_complaint()


@pytest.mark.parametrize("at", ["folder", "parent"])
def test_folder_that_cannot_be(tmp_path: Path, at: str, one_complaint: Callable[[], None]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    store = DiskStore(blocked if at == "folder" else blocked / "images", BIG)
    store.put(encoded())
    assert store.get(expected("a")) is None
    one_complaint()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root writes anywhere")
def test_read_only_folder_still_reads(folder: Path) -> None:
    DiskStore(folder, BIG).put(encoded())
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        store = DiskStore(folder, BIG)
        store.put(encoded("b"))
        assert_same(store.get(expected("a")), encoded())
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)


def test_failing_reads_are_misses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, one_complaint: Callable[[], None]
) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded())

    def broken(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", broken)
        assert store.get(expected("a")) is None
        assert store.get(expected("a")) is None
    assert_same(store.get(expected("a")), encoded())
    one_complaint()


# several processes


def hold_the_lock(folder: Path, held: Path) -> None:
    with DiskStore(folder, BIG)._exclusive():
        held.touch()
        time.sleep(600)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGSTOP")
def test_a_stopped_process_delays_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(disk, "_LOCK_PATIENCE_S", 0.05)
    store, held = DiskStore(folder, BIG), folder.with_name("held")
    process = SPAWN.Process(target=hold_the_lock, args=(folder, held))
    process.start()
    while not held.exists():
        assert process.is_alive()
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    store.put(encoded())
    DiskStore(folder, BIG).put(encoded())
    assert entries(folder) == []
    process.kill()
    process.join()
    store.put(encoded())
    assert_same(store.get(expected()), encoded())
    assert caplog.records == []


def test_threads_exclude_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_LOCK_PATIENCE_S", 0.05)
    store = DiskStore(folder, BIG)
    with store._exclusive():
        writer = threading.Thread(target=store.put, args=(encoded(),))
        writer.start()
        writer.join()
    assert entries(folder) == []
    store.put(encoded())
    assert len(entries(folder)) == 1


def test_temporary_files_of_dead_writers_are_removed(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    store.put(encoded())
    (path,) = entries(folder)
    path.with_name("x.tmp").write_bytes(b"half")
    store.put(encoded("b"))
    assert leftovers(folder) == []
    path.with_name("x.tmp").write_bytes(b"half")
    DiskStore(folder, BIG)
    assert leftovers(folder) == []


def test_a_folder_removed_while_running_is_made_anew(folder: Path) -> None:
    store = DiskStore(folder, BIG)
    shutil.rmtree(folder)
    assert store.get(expected()) is None
    store.put(encoded())
    assert_same(store.get(expected()), encoded())


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root removes anything")
def test_room_that_cannot_be_made_is_not_taken(folder: Path, tmp_path: Path) -> None:
    size = entry_bytes(tmp_path)
    store = DiskStore(folder, size)
    store.put(encoded("0"))
    (path,) = entries(folder)
    path.parent.chmod(0o500)
    try:
        store.put(encoded("1"))
        assert entries(folder) == [path]
    finally:
        path.parent.chmod(0o700)


def use_at_random(folder: Path, max_bytes: int, seed: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    store = DiskStore(folder, max_bytes)
    for _ in range(rounds):
        number = int(rng.integers(12))
        found = store.get(expected(str(number)))
        if found is None:
            store.put(encoded(str(number), number))
        else:
            assert_same(found, encoded(str(number), number))
    # Other processes evicted about half of them; none was damaged.
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
        with suppress(Timeout), watching._exclusive():  # the bound holds between two writers
            total = sum(path.stat().st_size for path in entries(folder))
            assert total <= limit
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
            assert process.is_alive()
            time.sleep(0.001)
        time.sleep(delay)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        store = DiskStore(folder, BIG)
        assert leftovers(folder) == []
        for number in range(5):
            found = store.get(expected(str(number), 20_000))
            if found is not None:
                assert_same(found, encoded(str(number), number, tokens=20_000))
        assert store.dropped == 0
