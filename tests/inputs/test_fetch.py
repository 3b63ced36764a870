"""URLs: what is refused, and what is fetched from servers in threads of this process."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from qwink.errors import FetchError
from qwink.inputs import fetch as fetching
from qwink.inputs.addresses import is_private, is_public
from qwink.inputs.fetch import FetchPolicy, fetch
from qwink.runtime.preparation import ImageOptions, _fetch

LOCAL = FetchPolicy(frozenset({"127.0.0.1"}), timeout_s=5.0)
PUBLIC = FetchPolicy(public=True, timeout_s=5.0)
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers each path as told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {"/a.png": content(PICTURE)}
        self.requests: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append((self.path, dict(self.headers)))
                outer.answers[self.path](self)
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass  # clients that hang up early are the point

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as server:
        yield server


def content(body: bytes, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(key.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def redirect(location: str, status: int = 302) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def dripping(before: bytes, drop: bytes) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(before)
        for _ in range(200):
            handler.wfile.write(drop)
            time.sleep(0.02)

    return answer


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """Names to answers of the resolver: each look-up takes the next, the last one stays."""
    known: dict[str, list[list[str]]] = {}

    def resolve(host: str, port: int) -> list[str]:
        if host not in known:
            raise socket.gaierror("unknown")
        return known[host].pop(0) if len(known[host]) > 1 else known[host][0]

    monkeypatch.setattr(fetching, "addresses_of", resolve)
    return known


# what is allowed


def test_fetches_from_a_named_host(server: Server) -> None:
    assert fetch(server.url("/a.png"), LOCAL) == PICTURE
    ((path, headers),) = server.requests
    assert path == "/a.png"
    assert headers["Host"] == f"127.0.0.1:{server.port}"
    assert headers["Accept-Encoding"] == "identity"


def test_nothing_is_allowed_by_default(server: Server) -> None:
    with pytest.raises(FetchError, match=r"not allowed.* --allow-url-host 127\.0\.0\.1"):
        fetch(server.url("/a.png"), FetchPolicy())
    assert server.requests == []


@pytest.mark.parametrize("host", ["127.0.0.2", "localhost", "example.com", "127.0.0.1.example.com"])
def test_a_name_allows_only_itself(host: str) -> None:
    with pytest.raises(FetchError, match="not allowed"):
        fetch(f"http://{host}/a.png", LOCAL)


def test_names_are_compared_as_urls_spell_them() -> None:
    policy = FetchPolicy(frozenset({"Bücher.Example.", "[::1]", "EXAMPLE.com"}))
    for host in (
        "bücher.example",
        "xn--bcher-kva.example",
        "BÜCHER.example",
        "::1",
        "example.com.",
    ):
        assert policy.names(host)
    assert not policy.names("www.example.com")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://127.0.0.1/a.png", "scheme 'ftp'"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("gopher://127.0.0.1/", "scheme 'gopher'"),
        ("/a.png", "scheme ''"),
        ("http:///a.png", "no host"),
        ("http://user:secret@127.0.0.1/a.png", "user name or password"),
        ("http://user@127.0.0.1/a.png", "user name or password"),
        ("http://127.0.0.1:99999/", "malformed"),
        ("http://[::1/", "malformed"),
        ("http://127.0.0.1\r\nX: y/", "malformed"),
        ("http://exa mple.com/", "malformed"),
    ],
)
def test_urls_that_are_never_fetched(url: str, why: str) -> None:
    with pytest.raises(FetchError, match=why) as caught:
        fetch(url, FetchPolicy(LOCAL.hosts, public=True))
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


# addresses


PRIVATE = (
    "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "::1", "fc00::1", "fd12:3456::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1",
)  # fmt: skip
NEITHER = (
    "0.0.0.0", "0.1.2.3", "100.64.0.1", "169.254.169.254", "192.0.2.1", "198.18.0.1",
    "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "::", "fe80::1", "fe80::1%eth0",
    "fec0::1", "ff02::1", "ff0e::1", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "::7f00:1",
    "2002:7f00:1::", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1",
    "64:ff9b::169.254.169.254", "64:ff9b:1::1", "100::1", "4000::1",
)  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses(address: str) -> None:
    assert is_private(address)
    assert not is_public(address)


@pytest.mark.parametrize("address", NEITHER)
def test_addresses_of_no_use(address: str) -> None:
    assert not is_private(address)
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "172.32.0.1", "2606:4700::1111", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)
    assert not is_private(address)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "127.1",
        "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]", "[0:0:0:0:0:0:0:1]", "169.254.169.254", "[fe80::1]",
        "localhost.", "127.0.0.1.",
    ],
)  # fmt: skip
def test_public_means_public(server: Server, host: str) -> None:
    with pytest.raises(FetchError, match=r"not public|no host|malformed"):
        fetch(server.url("/a.png", host), PUBLIC)
    assert server.requests == []


def test_spellings_of_a_named_address_are_not_that_name(server: Server) -> None:
    for host in ("2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
        with pytest.raises(FetchError, match="not allowed"):
            fetch(server.url("/a.png", host), LOCAL)


def test_one_private_address_among_public_ones_is_enough(
    server: Server, names: dict[str, list[list[str]]]
) -> None:
    names["mixed.test"] = [["8.8.8.8", "127.0.0.1"]]
    with pytest.raises(FetchError, match=r"mixed\.test leads to an address that is not public"):
        fetch(server.url("/a.png", "mixed.test"), PUBLIC)


def test_named_hosts_may_be_private_but_never_link_local(
    server: Server, names: dict[str, list[list[str]]]
) -> None:
    policy = FetchPolicy(frozenset({"pictures.test"}), public=True, timeout_s=5)
    names["pictures.test"] = [["127.0.0.1"]]
    assert fetch(server.url("/a.png", "pictures.test"), policy) == PICTURE
    assert server.requests[0][1]["Host"] == f"pictures.test:{server.port}"
    for address in ("169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1"):
        names["pictures.test"] = [[address]]
        with pytest.raises(FetchError, match="not public"):
            fetch(server.url("/a.png", "pictures.test"), policy)


def test_the_name_is_looked_up_once(server: Server, names: dict[str, list[list[str]]]) -> None:
    # Were it asked again to connect, it would lead to 10.0.0.1.
    names["rebinding.test"] = [["127.0.0.1"], ["10.0.0.1"]]
    policy = FetchPolicy(frozenset({"rebinding.test"}), timeout_s=5)
    assert fetch(server.url("/a.png", "rebinding.test"), policy) == PICTURE
    assert names["rebinding.test"] == [["10.0.0.1"]]


def test_the_next_address_is_tried(server: Server, names: dict[str, list[list[str]]]) -> None:
    names["two.test"] = [["127.7.7.7", "127.0.0.1"]]  # nobody listens at the first
    policy = FetchPolicy(frozenset({"two.test"}), timeout_s=5)
    assert fetch(server.url("/a.png", "two.test"), policy) == PICTURE


def test_unknown_host(names: dict[str, list[list[str]]]) -> None:
    with pytest.raises(FetchError, match=r"there is no host gone\.test"):
        fetch("http://gone.test/a.png", PUBLIC)


def test_proxies_of_the_environment_are_ignored(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert fetch(server.url("/a.png"), LOCAL) == PICTURE


# redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(server: Server, status: int) -> None:
    server.answers["/old"] = redirect("a.png?x=1", status)
    server.answers["/a.png?x=1"] = content(PICTURE)
    assert fetch(server.url("/old"), LOCAL) == PICTURE


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://127.0.0.2/a.png", "not allowed"),
        ("//localhost/a.png", "not allowed"),
        ("http://10.0.0.1/", "not allowed"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("http://user:pass@127.0.0.1/", "user name"),
        ("http://[::1", "malformed"),
    ],
)
def test_redirects_are_checked(server: Server, location: str, why: str) -> None:
    server.answers["/old"] = redirect(location)
    with pytest.raises(FetchError, match=why):
        fetch(server.url("/old"), LOCAL)


def test_public_redirect_to_a_private_address(
    server: Server, names: dict[str, list[list[str]]]
) -> None:
    names["good.test"] = [["127.0.0.1"]]
    names["evil.test"] = [["127.0.0.1"]]
    server.answers["/old"] = redirect(server.url("/a.png", "evil.test"))
    policy = FetchPolicy(frozenset({"good.test"}), public=True, timeout_s=5)
    with pytest.raises(FetchError, match=r"evil\.test leads to an address that is not public"):
        fetch(server.url("/old", "good.test"), policy)


def test_redirects_in_circles(server: Server) -> None:
    server.answers["/old"] = redirect("/old")
    with pytest.raises(FetchError, match="more than 5 redirects"):
        fetch(server.url("/old"), LOCAL)
    assert len(server.requests) == 6


# size and time


def test_announced_size_is_refused_at_once(server: Server) -> None:
    policy = FetchPolicy(LOCAL.hosts, max_bytes=len(PICTURE) - 1, timeout_s=5)
    with pytest.raises(FetchError, match="sends more than"):
        fetch(server.url("/a.png"), policy)
    exactly = FetchPolicy(LOCAL.hosts, max_bytes=len(PICTURE), timeout_s=5)
    assert fetch(server.url("/a.png"), exactly) == PICTURE


def test_size_that_is_not_announced(server: Server) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:  # until the client hangs up
            handler.wfile.write(b"x" * 65536)

    server.answers["/endless"] = endless
    policy = FetchPolicy(LOCAL.hosts, max_bytes=1 << 20, timeout_s=20)
    with pytest.raises(FetchError, match="sends more than 1 MiB"):
        fetch(server.url("/endless"), policy)


def test_content_shorter_than_announced(server: Server) -> None:
    server.answers["/short"] = content(b"abc", Content_Length="10")
    with pytest.raises(FetchError, match="cannot fetch"):
        fetch(server.url("/short"), LOCAL)


def test_compressed_content_is_refused(server: Server) -> None:
    server.answers["/bomb"] = content(b"\x1f\x8b" * 100, Content_Encoding="gzip")
    with pytest.raises(FetchError, match="compressed"):
        fetch(server.url("/bomb"), LOCAL)


@pytest.mark.parametrize(
    ("before", "drop"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x"),
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    ],
)
def test_slow_answers_are_cut_off(server: Server, before: bytes, drop: bytes) -> None:
    server.answers["/slow"] = dripping(before, drop)
    policy = FetchPolicy(LOCAL.hosts, timeout_s=0.3)
    started = time.monotonic()
    with pytest.raises(FetchError, match=r"took longer than 0\.3 s"):
        fetch(server.url("/slow"), policy)
    assert time.monotonic() - started < 2


def test_slow_look_up_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def slow(host: str, port: int) -> list[str]:
        release.wait(5)
        return ["8.8.8.8"]

    monkeypatch.setattr(fetching, "addresses_of", slow)
    with pytest.raises(FetchError, match="took longer"):
        fetch("http://slow.test/", FetchPolicy(public=True, timeout_s=0.2))
    release.set()


@pytest.mark.parametrize("status", [204, 206, 304, 401, 404, 500])
def test_other_statuses(server: Server, status: int) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answers["/other"] = answer
    with pytest.raises(FetchError, match=f"answered with status {status}"):
        fetch(server.url("/other"), LOCAL)


def test_what_is_no_http(server: Server) -> None:
    server.answers["/odd"] = dripping(b"SSH-2.0-odd\r\n\r\n", b"")
    with pytest.raises(FetchError, match="cannot fetch"):
        fetch(server.url("/odd"), LOCAL)


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(FetchError, match=r"cannot fetch from 127\.0\.0\.1"):
        fetch(f"http://127.0.0.1:{port}/a.png", LOCAL)


def test_messages_do_not_repeat_secrets(server: Server) -> None:
    with pytest.raises(FetchError) as caught:
        fetch(server.url("/a.png?signature=secret"), FetchPolicy())
    assert "secret" not in str(caught.value)


def test_pictures_of_the_library_are_fetched_only_by_policy(server: Server) -> None:
    with pytest.raises(FetchError, match="URLs are not fetched here"):
        _fetch(server.url("/a.png"), ImageOptions().fetch_policy)
    assert _fetch(server.url("/a.png"), ImageOptions(fetch_policy=LOCAL).fetch_policy) == PICTURE


# TLS


@pytest.fixture
def secure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, list[list[str]]]
) -> Iterator[Server]:
    """Speaks TLS as secure.test, with a certificate that is trusted here."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
        "-keyout", str(key), "-out", str(certificate),
        "-subj", "/CN=secure.test", "-addext", "subjectAltName=DNS:secure.test",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    server = Server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.server.socket = context.wrap_socket(server.server.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    fetching._tls.cache_clear()
    names["secure.test"] = names["other.test"] = [["127.0.0.1"]]
    with running(server):
        yield server
    fetching._tls.cache_clear()


def test_tls_is_verified_for_the_name(secure: Server) -> None:
    policy = FetchPolicy(frozenset({"secure.test", "other.test"}), timeout_s=5)
    assert fetch(secure.url("/a.png", "secure.test", "https"), policy) == PICTURE
    assert secure.requests[0][1]["Host"] == f"secure.test:{secure.port}"
    with pytest.raises(FetchError, match=r"other\.test.*CERTIFICATE_VERIFY_FAILED"):
        fetch(secure.url("/a.png", "other.test", "https"), policy)


def test_untrusted_certificates_are_refused(
    secure: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    fetching._tls.cache_clear()
    policy = FetchPolicy(frozenset({"secure.test"}), timeout_s=5)
    with pytest.raises(FetchError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(secure.url("/a.png", "secure.test", "https"), policy)
