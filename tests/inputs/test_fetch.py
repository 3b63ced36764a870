"""URLs: which are refused, and which are fetched, from servers in threads of this process."""

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

from qwink.errors import FetchError, OptionError
from qwink.inputs import fetch as fetching
from qwink.inputs import hosts, network
from qwink.inputs.fetch import FetchPolicy, fetch
from qwink.runtime.preparation import ImageOptions, fetched

LOCAL = FetchPolicy(frozenset({"127.0.0.1"}), timeout_s=5.0)  # ports 80 and 443
PUBLIC = FetchPolicy(public=True, timeout_s=5.0)
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers each path as set, and records the requests."""

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
                pass  # clients that hang up early are expected

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def policy(self, *hosts: str, public: bool = False, **limits: Any) -> FetchPolicy:
        """Allows this server's port of the hosts, by default of 127.0.0.1."""
        named = frozenset(f"{host}:{self.port}" for host in hosts or ("127.0.0.1",))
        return FetchPolicy(named, public, **({"timeout_s": 5.0} | limits))


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
    """The resolver's answers by name: each look-up takes the next; the last one is repeated."""
    known: dict[str, list[list[str]]] = {}

    def resolve(host: str, port: int) -> list[str]:
        if host not in known:
            raise socket.gaierror("unknown")
        return known[host].pop(0) if len(known[host]) > 1 else known[host][0]

    monkeypatch.setattr(network, "addresses_of", resolve)
    return known


@pytest.fixture
def web_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server whose port counts as a web server's."""
    ports = frozenset({80, 443, server.port})
    monkeypatch.setattr(hosts, "WEB_PORTS", ports)
    monkeypatch.setattr(fetching, "WEB_PORTS", ports)
    return server


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# what is allowed


def test_fetches_from_a_named_host(server: Server) -> None:
    assert fetch(server.url("/a.png"), server.policy()) == PICTURE
    ((path, headers),) = server.requests
    assert path == "/a.png"
    assert headers["Host"] == f"127.0.0.1:{server.port}"
    assert headers["Accept-Encoding"] == "identity"


def test_nothing_is_allowed_by_default(server: Server) -> None:
    with pytest.raises(
        FetchError, match=rf"not allowed.* --allow-url-host 127\.0\.0\.1:{server.port}$"
    ):
        fetch(server.url("/a.png"), FetchPolicy())
    assert server.requests == []


@pytest.mark.parametrize("host", ["127.0.0.2", "localhost", "example.com", "127.0.0.1.example.com"])
def test_a_name_allows_only_itself(host: str) -> None:
    with pytest.raises(FetchError, match="not allowed"):
        fetch(f"http://{host}/a.png", LOCAL)


def test_a_host_without_port_is_allowed_at_web_ports_only(web_server: Server) -> None:
    policy = FetchPolicy(frozenset({"127.0.0.1"}), timeout_s=5.0)
    assert fetch(web_server.url("/a.png"), policy) == PICTURE
    closed = free_port()
    with pytest.raises(FetchError, match=rf"127\.0\.0\.1:{closed} is not allowed"):
        fetch(f"http://127.0.0.1:{closed}/a.png", policy)


def test_a_host_with_port_is_allowed_at_that_port_only(server: Server) -> None:
    policy = server.policy()
    assert fetch(server.url("/a.png"), policy) == PICTURE
    for url in ("http://127.0.0.1/", "https://127.0.0.1/", f"http://127.0.0.1:{server.port + 1}/"):
        with pytest.raises(FetchError, match="is not allowed"):
            fetch(url, policy)


def test_public_hosts_are_allowed_at_web_ports_only(
    server: Server, names: dict[str, list[list[str]]]
) -> None:
    names["public.test"] = [["8.8.8.8"]]
    with pytest.raises(FetchError, match=rf"public\.test:{server.port} is not allowed"):
        fetch(server.url("/a.png", "public.test"), PUBLIC)


def test_refusals_advise_only_options_that_are_accepted() -> None:
    for url in ("http://169.254.169.254/", "http://0.0.0.0:8080/", "http://[fe80::1]/"):
        with pytest.raises(FetchError, match="not allowed") as caught:
            fetch(url, FetchPolicy())
        assert "--allow-url-host" not in str(caught.value)
    with pytest.raises(FetchError, match=r"--allow-url-host \[::1\]:8080$"):
        fetch("http://[::1]:8080/", FetchPolicy())


def test_hosts_that_no_url_matches_are_refused() -> None:
    with pytest.raises(OptionError, match=r"hosts is 'https://x/', which no URL matches"):
        FetchPolicy(frozenset({"https://x/"}))


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


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "127.1",
        "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]", "[0:0:0:0:0:0:0:1]", "169.254.169.254", "[fe80::1]",
        "localhost.", "127.0.0.1.",
    ],
)  # fmt: skip
def test_public_means_public(web_server: Server, host: str) -> None:
    with pytest.raises(FetchError, match=r"there is no public host|malformed"):
        fetch(web_server.url("/a.png", host), PUBLIC)
    assert web_server.requests == []


def test_spellings_of_a_named_address_are_not_that_name(server: Server) -> None:
    for host in ("2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
        with pytest.raises(FetchError, match="not allowed"):
            fetch(server.url("/a.png", host), server.policy())


def test_one_private_address_among_public_ones_is_enough(
    web_server: Server, names: dict[str, list[list[str]]]
) -> None:
    names["mixed.test"] = [["8.8.8.8", "127.0.0.1"]]
    with pytest.raises(FetchError, match=r"there is no public host mixed\.test"):
        fetch(web_server.url("/a.png", "mixed.test"), PUBLIC)


def test_named_hosts_may_be_private_but_never_link_local(
    server: Server, names: dict[str, list[list[str]]]
) -> None:
    policy = server.policy("pictures.test", public=True)
    names["pictures.test"] = [["127.0.0.1"]]
    assert fetch(server.url("/a.png", "pictures.test"), policy) == PICTURE
    assert server.requests[0][1]["Host"] == f"pictures.test:{server.port}"
    for address in ("169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1"):
        names["pictures.test"] = [[address]]
        with pytest.raises(FetchError, match=r"no host pictures\.test at a public or private"):
            fetch(server.url("/a.png", "pictures.test"), policy)


def test_the_name_is_looked_up_once(server: Server, names: dict[str, list[list[str]]]) -> None:
    # A second look-up would give 10.0.0.1.
    names["rebinding.test"] = [["127.0.0.1"], ["10.0.0.1"]]
    policy = server.policy("rebinding.test")
    assert fetch(server.url("/a.png", "rebinding.test"), policy) == PICTURE
    assert names["rebinding.test"] == [["10.0.0.1"]]


def test_the_next_address_is_tried(server: Server, names: dict[str, list[list[str]]]) -> None:
    names["two.test"] = [["127.7.7.7", "127.0.0.1"]]  # nothing listens at the first
    policy = server.policy("two.test")
    assert fetch(server.url("/a.png", "two.test"), policy) == PICTURE


def test_internal_names_cannot_be_told_from_unknown_ones(
    names: dict[str, list[list[str]]],
) -> None:
    def message() -> str:
        with pytest.raises(FetchError, match=r"there is no public host name\.test") as caught:
            fetch("http://name.test/a.png", PUBLIC)
        return str(caught.value)

    unknown = message()
    for address in ("10.0.0.1", "127.0.0.1", "169.254.169.254", "fd00::1"):
        names["name.test"] = [[address]]
        assert message() == unknown


def test_proxies_of_the_environment_are_ignored(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert fetch(server.url("/a.png"), server.policy()) == PICTURE


# redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(server: Server, status: int) -> None:
    server.answers["/old"] = redirect("a.png?x=1", status)
    server.answers["/a.png?x=1"] = content(PICTURE)
    assert fetch(server.url("/old"), server.policy()) == PICTURE


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://127.0.0.2/a.png", "not allowed"),
        ("//localhost/a.png", "not allowed"),
        ("http://10.0.0.1/", "not allowed"),
        ("http://127.0.0.1/", "not allowed"),
        ("http://127.0.0.1:22/", "not allowed"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("http://user:pass@127.0.0.1/", "user name"),
        ("http://[::1", "malformed"),
    ],
)
def test_redirects_are_checked(server: Server, location: str, why: str) -> None:
    server.answers["/old"] = redirect(location)
    with pytest.raises(FetchError, match=why):
        fetch(server.url("/old"), server.policy())


def test_public_redirect_to_a_private_address(
    web_server: Server, names: dict[str, list[list[str]]]
) -> None:
    names["good.test"] = [["127.0.0.1"]]
    names["evil.test"] = [["127.0.0.1"]]
    web_server.answers["/old"] = redirect(web_server.url("/a.png", "evil.test"))
    policy = web_server.policy("good.test", public=True)
    with pytest.raises(FetchError, match=r"there is no public host evil\.test"):
        fetch(web_server.url("/old", "good.test"), policy)


def test_redirects_in_circles(server: Server) -> None:
    server.answers["/old"] = redirect("/old")
    with pytest.raises(FetchError, match="more than 5 redirects"):
        fetch(server.url("/old"), server.policy())
    assert len(server.requests) == 6


# size and time


def test_announced_size_is_refused_at_once(server: Server) -> None:
    with pytest.raises(FetchError, match="sends more than"):
        fetch(server.url("/a.png"), server.policy(max_bytes=len(PICTURE) - 1))
    assert fetch(server.url("/a.png"), server.policy(max_bytes=len(PICTURE))) == PICTURE


def test_size_that_is_not_announced(server: Server) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:  # until the client hangs up
            handler.wfile.write(b"x" * 65536)

    server.answers["/endless"] = endless
    with pytest.raises(FetchError, match="sends more than 1 MiB"):
        fetch(server.url("/endless"), server.policy(max_bytes=1 << 20, timeout_s=20))


def test_compressed_content_is_refused(server: Server) -> None:
    server.answers["/bomb"] = content(b"\x1f\x8b" * 100, Content_Encoding="gzip")
    with pytest.raises(FetchError, match="compressed"):
        fetch(server.url("/bomb"), server.policy())


# what gave no picture: one message, whatever the port does


def status(number: int) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(number)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


FAILING: dict[str, tuple[Answer, str]] = {
    "silent": (dripping(b"", b""), "timeout"),
    "slow header": (dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"), "timeout"),
    "slow content": (dripping(b"HTTP/1.1 200 OK\r\n\r\n", b"x"), "timeout"),
    "slow chunk": (
        dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x"),
        "timeout",
    ),
    "interim": (dripping(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), "timeout"),
    "short": (content(b"abc", Content_Length="10"), "RemoteProtocolError"),
    "ssh": (dripping(b"SSH-2.0-secret\r\n\r\n", b""), "RemoteProtocolError"),
    "long number": (content(b"", Content_Length="9" * 5000), ""),
    **{f"status {n}": (status(n), f"status {n}") for n in (204, 206, 304, 401, 404, 500)},
}


def messages_of(url: str, policy: FetchPolicy, caplog: pytest.LogCaptureFixture) -> tuple[str, str]:
    """The messages for the client and for the log."""
    caplog.clear()
    with caplog.at_level("INFO", "qwink"), pytest.raises(FetchError) as caught:
        fetch(url, policy)
    (record,) = caplog.records
    return str(caught.value), record.fields["reason"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", FAILING)
def test_failures_have_one_message_and_the_log_has_the_reason(
    server: Server, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["/a.png"], reason = FAILING[kind]
    told, logged = messages_of(server.url("/a.png"), server.policy(timeout_s=0.5), caplog)
    assert told == (
        f"127.0.0.1:{server.port} gave no picture within 0.5 s; "
        "check that the URL opens without a login, or send the picture itself"
    )
    assert reason in logged
    assert "secret" not in caplog.text


def test_closed_and_speaking_ports_cannot_be_told_apart(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["/a.png"] = status(404)
    port = free_port()
    closed = FetchPolicy(frozenset({f"127.0.0.1:{port}"}), timeout_s=5.0)
    refused, reason = messages_of(f"http://127.0.0.1:{port}/a.png", closed, caplog)
    spoken, _ = messages_of(server.url("/a.png"), server.policy(), caplog)
    no_tls, _ = messages_of(server.url("/a.png", scheme="https"), server.policy(), caplog)
    assert refused.replace(str(port), "PORT") == spoken.replace(str(server.port), "PORT")
    assert no_tls == spoken
    assert reason == "Connection refused"


def test_slow_look_up_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def slow(host: str, port: int) -> list[str]:
        release.wait(60)
        return ["8.8.8.8"]

    monkeypatch.setattr(network, "addresses_of", slow)
    with pytest.raises(FetchError, match=r"slow\.test gave no picture within 0\.2 s"):
        fetch("http://slow.test/", FetchPolicy(public=True, timeout_s=0.2))
    release.set()


def test_messages_do_not_repeat_secrets(server: Server) -> None:
    with pytest.raises(FetchError) as caught:
        fetch(server.url("/a.png?signature=secret"), FetchPolicy())
    assert "secret" not in str(caught.value)


def test_pictures_of_the_library_are_fetched_only_by_policy(server: Server) -> None:
    with pytest.raises(FetchError, match="URLs are not fetched here"):
        fetched(server.url("/a.png"), ImageOptions().fetch_policy)
    options = ImageOptions(fetch_policy=server.policy())
    assert fetched(server.url("/a.png"), options.fetch_policy) == PICTURE


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


def test_tls_is_verified_for_the_name(secure: Server, caplog: pytest.LogCaptureFixture) -> None:
    policy = secure.policy("secure.test", "other.test")
    assert fetch(secure.url("/a.png", "secure.test", "https"), policy) == PICTURE
    assert secure.requests[0][1]["Host"] == f"secure.test:{secure.port}"
    told, logged = messages_of(secure.url("/a.png", "other.test", "https"), policy, caplog)
    assert told.startswith(f"other.test:{secure.port} gave no picture")
    assert logged.startswith("certificate: Hostname mismatch")
    assert len(secure.requests) == 1


def test_untrusted_certificates_are_refused(
    secure: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    fetching._tls.cache_clear()
    url, policy = secure.url("/a.png", "secure.test", "https"), secure.policy("secure.test")
    _, logged = messages_of(url, policy, caplog)
    assert logged.startswith("certificate: self")
    assert secure.requests == []
