"""Bytes in a real Redis: what was put comes back, or nothing; no fault of Redis raises."""

from __future__ import annotations

import datetime
import ipaddress
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from qwink.cache import address, breaker, redis
from qwink.cache.address import StoreOptions, without_password
from qwink.cache.entry import Unusable
from qwink.cache.redis import RedisStore
from qwink.errors import OptionError
from qwink.lab.store.proxy import SlowProxy
from qwink.lab.store.server import RedisServer
from tests import stores

BIG = 1 << 20


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with stores.start(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(common: RedisServer) -> RedisServer:
    """A server that no test kills; empty."""
    stores.client(common).flushall()
    return common


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of this test alone."""
    with stores.start(tmp_path) as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "_LEAST_S", 0.1)
    monkeypatch.setattr(redis, "_PIECE_BYTES", 30_000)
    monkeypatch.setattr(breaker, "FIRST_PAUSE_S", 0.5)
    monkeypatch.setattr(breaker, "LONGEST_PAUSE_S", 0.5)


def opened(url: str, **options: object) -> RedisStore:
    return RedisStore(StoreOptions(url, **options))  # type: ignore[arg-type]


def fetch(store: RedisStore, name: str, most: int = BIG) -> Future[bytes | None]:
    return store.fetch(name, most, lambda data: data)


def get(store: RedisStore, name: str, most: int = BIG) -> bytes | None:
    return fetch(store, name, most).result(stores.PATIENCE_S)


def put(store: RedisStore, name: str, content: bytes) -> None:
    """Put, and wait until the write has ended somehow."""
    store.put(name, len(content), lambda: content)
    stores.until(lambda: not store.num_queued_bytes)


def test_what_is_put_is_fetched_by_another_store(server: RedisServer) -> None:
    first, second = opened(server.url), opened(server.url)
    assert get(second, "a") is None
    content = bytes(range(256)) * 4000
    put(first, "a", content)
    assert get(second, "a", len(content)) == content
    assert first.writes["written"] == 1
    assert (second.reads["miss"], second.reads["hit"]) == (1, 1)
    assert second.num_bytes["read"] == first.num_bytes["write"] == len(content)
    for store in (first, second):
        store.close()
        store.close()
        assert get(store, "a") is None
        store.put("b", 1, lambda: b"b")


def test_entries_live_for_their_time_only(server: RedisServer) -> None:
    with_time, without = opened(server.url, ttl_s=77.5), opened(server.url)
    put(with_time, "a", b"x")
    put(without, "b", b"x")
    looking = stores.client(server)
    assert 70 < looking.ttl("a") <= 78
    assert looking.ttl("b") == -1
    with_time.close()
    without.close()


def test_large_entries_are_neither_written_nor_read(server: RedisServer) -> None:
    store = opened(server.url, max_entry_bytes=10)
    put(store, "a", b"x" * 11)
    put(store, "b", b"x" * 10)
    assert store.writes == {**store.writes, "refused": 1, "written": 1}
    assert get(store, "a", 11) is None
    assert get(store, "b", 10) == b"x" * 10
    assert sum(store.reads.values()) == 1
    store.close()


def test_no_more_than_asked_for_is_transferred(server: RedisServer) -> None:
    stores.client(server).set("a", b"x" * 5_000_000)
    store = opened(server.url)
    assert get(store, "a", 10) == b"x" * 11  # one more, so that a reader notices
    assert store.num_bytes["read"] == 11
    store.close()


def test_damaged_entries_count_as_such(server: RedisServer) -> None:
    def refuse(_: bytes) -> bytes:
        raise Unusable

    store = opened(server.url)
    put(store, "a", b"x")
    assert store.fetch("a", 10, refuse).result(stores.PATIENCE_S) is None
    stores.client(server).rpush("list", "x")  # not a string
    assert get(store, "list") is None
    assert (store.reads["damaged"], store.reads["error"], store.reads["hit"]) == (1, 1, 0)
    store.close()


def test_what_is_not_to_be_kept_is_refused(server: RedisServer) -> None:
    def refuse() -> bytes:
        raise Unusable

    store = opened(server.url)
    store.put("a", 1, refuse)
    stores.until(lambda: store.writes["refused"])
    assert stores.client(server).exists("a") == 0
    store.close()


def test_writes_beyond_the_queue_are_dropped(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "_QUEUED_BYTES", 10_000_000)
    with SlowProxy(server.port, bytes_per_s=0) as proxy:
        store = opened(proxy.url)
        for number in range(5):
            store.put(f"{number}", 4_000_000, lambda: b"x" * 4_000_000)
        assert store.writes["dropped"] == 3
        assert store.num_queued_bytes == 8_000_000
        proxy.bytes_per_s = float("inf")
        stores.until(lambda: not store.num_queued_bytes)
        store.close()


def test_users_and_passwords(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    acl = ("--requirepass", "s3cret/", "--user", "ann", "on", ">p@ss", "~qwink:*", "+@all")
    with stores.start(tmp_path, acl) as server:
        there = f"127.0.0.1:{server.port}"
        for user in (":s3cret%2F", "ann:p%40ss"):
            store = opened(f"redis://{user}@{there}/0")
            put(store, "qwink:a", user.encode())
            assert get(store, "qwink:a") == user.encode()
            assert get(store, "qwink:a") == user.encode()
            store.close()
        caplog.clear()
        for user in ("", "ann:wr0ng@"):
            store = opened(f"redis://{user}{there}")
            stores.until(lambda store=store: store.breakers["read"].state == "open")  # type: ignore[misc]
            assert get(store, "qwink:a") is None
            store.close()
        stores.until(lambda: len(caplog.records) == 2)
        assert "wr0ng" not in caplog.text
        assert there in caplog.text


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "qwink test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def test_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = certificate(tmp_path)
    options = ["--tls-cert-file", str(cert), "--tls-key-file", str(key)]
    options += ["--tls-auth-clients", "no", "--requirepass", "pass"]
    with stores.start(tmp_path, options, tls=True) as server:
        url = f"rediss://:pass@127.0.0.1:{server.port}"
        store = opened(f"{url}?ssl_ca_certs={cert}")
        put(store, "a", b"x")
        assert get(store, "a") == b"x"
        store.close()
        untrusted = opened(url)
        stores.until(lambda: untrusted.breakers["read"].state == "open")
        assert get(untrusted, "a") is None
        stores.until(lambda: "certificate" in caplog.text)
        untrusted.close()


def test_unix_sockets(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with stores.start(tmp_path, ["--unixsocket", str(path), "--requirepass", "p"]):
        store = opened(f"unix://:p@{path}?db=3")
        put(store, "a", b"x")
        assert get(store, "a") == b"x"
        store.close()


def test_a_server_that_is_absent_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(f"unix://{tmp_path}/nothing")
    stores.until(lambda: store.breakers["read"].state == "open")
    for _ in range(10):
        assert get(store, "a") is None
    assert store.reads["skipped"] == 10
    for number in range(10):
        put(store, f"{number}", b"x")
    assert store.writes["error"] == breaker.NUM_FAILURES
    assert store.writes["skipped"] == 10 - breaker.NUM_FAILURES
    stores.until(lambda: len(caplog.records) == 2)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "reading from the shared store" in caplog.messages[0]
    assert "writing to the shared store" in caplog.messages[1]
    store.close()


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_killed_and_restarted(
    own: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(own.url)
    put(store, "a", b"x")
    assert get(store, "a") == b"x"
    own.kill()
    for _ in range(breaker.NUM_FAILURES):
        assert get(store, "a") is None
    assert store.reads["error"] == breaker.NUM_FAILURES
    assert store.breakers["read"].state == "open"
    assert get(store, "a") is None
    assert store.reads["skipped"] == 1
    own.start()

    def works() -> bool:
        put(store, "b", b"y")
        return get(store, "b") == b"y"

    stores.until(works)
    assert get(store, "a") is None  # it was empty after its start
    stores.until(lambda: len([line for line in caplog.messages if "reading" in line]) == 2)
    assert "works again" in caplog.text
    store.close()


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_stopped_delays_nobody(own: RedisServer) -> None:
    store = opened(own.url)
    put(store, "a", b"x")
    own.pause()
    waiting = [fetch(store, "a") for _ in range(6)]
    assert [one.result(stores.PATIENCE_S) for one in waiting] == 6 * [None]
    assert store.reads["timeout"] == 6
    assert store.breakers["read"].state == "open"
    own.resume()
    stores.until(lambda: get(store, "a") == b"x")
    store.close()


@pytest.mark.usefixtures("impatient")
def test_answers_that_trickle_are_cut_off_and_never_mixed_up(server: RedisServer) -> None:
    contents = {f"{number}": bytes([number]) * 100_000 for number in range(8)}
    with SlowProxy(server.port) as proxy:
        store = opened(proxy.url)
        for name, content in contents.items():
            put(store, name, content)
        proxy.bytes_per_s = 10_000
        slow = [fetch(store, name, 100_000) for name in contents]
        assert [one.result(stores.PATIENCE_S) for one in slow] == 8 * [None]
        assert store.reads["timeout"] == 8
        proxy.bytes_per_s = float("inf")
        stores.until(lambda: get(store, "0") is not None)
        for name, content in contents.items():
            assert get(store, name, 100_000) == content
        store.close()


@pytest.mark.usefixtures("impatient")
def test_values_that_are_not_needed_any_more_count_as_late(server: RedisServer) -> None:
    content = b"x" * 1_000_000
    with SlowProxy(server.port) as proxy:
        store = opened(proxy.url)
        put(store, "a", content)
        proxy.bytes_per_s = 0
        for _ in range(breaker.NUM_FAILURES):
            one = fetch(store, "a")
            stores.until(lambda: store._reading._value < redis._NUM_READS)
            assert one.cancel()
            stores.until(lambda: store._reading._value == redis._NUM_READS)
        assert store.reads["late"] == breaker.NUM_FAILURES
        assert store.breakers["read"].state == "open"
        proxy.bytes_per_s = float("inf")
        stores.until(lambda: get(store, "a") == content)
        store.close()


@pytest.mark.usefixtures("impatient")
def test_a_full_server_is_still_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = ("--maxmemory", "6mb", "--maxmemory-policy", "noeviction")
    with stores.start(tmp_path, limits) as server:
        store = opened(server.url)
        put(store, "a", b"x")
        for number in range(20):
            put(store, f"{number}", b"x" * 1_000_000)
        assert store.writes["error"] >= breaker.NUM_FAILURES
        assert get(store, "a") == b"x"
        assert store.breakers["read"].state == "closed"
        assert "'maxmemory'" in caplog.text
        stores.client(server).flushall()

        def written() -> bool:
            put(store, "b", b"y")
            return get(store, "b") == b"y"

        stores.until(written)
        store.close()


def test_closing_does_not_wait_for_a_silent_server(own: RedisServer) -> None:
    store = opened(own.url)
    put(store, "a", b"x")
    own.pause()
    store.put("b", 1, lambda: b"x")
    waiting = fetch(store, "a")
    store.close()
    assert not store._thread.is_alive()
    assert waiting.cancelled()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "begins with ''"),
        ("localhost:6379", "begins with 'localhost'"),
        ("http://localhost", "begins with 'http'"),
        ("redis://localhost:x", "not valid"),
        ("redis://localhost:99999", "not valid"),
        ("redis://[::1", "not valid"),
        ("redis://localhost/x", "database '/x'"),
        ("redis://localhost?db=x", "db='x'"),
        ("redis://localhost?ssl=1", "option 'ssl'; known are db, ssl_ca_certs"),
        ("redis://localhost?ssl_ca_certs=x", "write rediss://... for TLS"),
        ("unix://", "no path"),
    ],
)
def test_urls_that_cannot_be_used(url: str, told: str) -> None:
    with pytest.raises(OptionError) as caught:
        StoreOptions(url)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"ttl_s": 0.5}, {"ttl_s": float("nan")}, {"max_entry_bytes": 0}]
)
def test_limits_that_cannot_be_used(options: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        StoreOptions("redis://localhost", **options)  # type: ignore[arg-type]


def test_secrets_are_not_shown() -> None:
    options = StoreOptions("redis://ann:p%40ss@h:1/2?db=3", secret=b"s3cret")
    assert "ss@" not in repr(options)
    assert "s3cret" not in repr(options)
    assert without_password("unix://:p@/tmp/socket?db=3") == "unix:///tmp/socket?db=3"
    assert without_password("redis://:p@h?db=1") == "redis://h?db=1"
    assert options.place == without_password(options.url) == "redis://h:1/2?db=3"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "find_spec", lambda _: None)
    with pytest.raises(OptionError, match=r"package redis; install it with: .*\[redis\]"):
        StoreOptions("redis://localhost")
