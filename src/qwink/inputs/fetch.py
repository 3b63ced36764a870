"""Pictures from URLs, for a server: nothing is fetched unless it was allowed.

A URL comes from whoever may ask questions, while the connection is made from inside the network
of whoever runs the server. Therefore:

- Only http and https, without credentials in the URL; proxies of the environment are not used.
- `FetchPolicy` names hosts, or allows all public ones. Every address that a name leads to must
  be public, and the connection goes to the very address that was checked, so that a name cannot
  lead elsewhere a moment later. TLS still verifies the name.
- A host that was named may also lead to loopback or a private network: whoever named it meant
  that. Never to link-local addresses, where clouds hand out credentials.
- Redirects are followed a few times, each checked like the first URL.
- Size and total time are capped, whatever the other side says or however slowly it says it.

What comes back may be anything; `open_image` looks at the content, not at what it is called.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpcore
import httpx

from qwink.errors import FetchError
from qwink.inputs.addresses import is_private, is_public

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Which URLs may be fetched, and at what cost. By default none.

    `hosts` are names or addresses as they stand in URLs, without port; each allows exactly
    itself. `public` allows all hosts with public addresses.
    """

    hosts: frozenset[str] = frozenset()
    public: bool = False
    max_bytes: int = 32 << 20
    timeout_s: float = 10.0  # for all of it: look-up, connections, redirects, content

    def names(self, host: str) -> bool:
        """Whether `host` was allowed by name."""
        return _canonical(host) in {_canonical(allowed) for allowed in self.hosts}


def fetch(url: str, policy: FetchPolicy) -> bytes:
    """The content behind a URL.

    Raises FetchError: not allowed, unreachable, too large, too slow, or not answered with 200.
    """
    deadline = _Deadline(policy.timeout_s)
    current = _parse(url)
    try:
        for _ in range(MAX_REDIRECTS + 1):
            _check_allowed(current, policy)
            content, location = _request(current, policy, deadline)
            if location is None:
                return content
            current = _parse(location, current)
    except (httpcore.TimeoutException, TimeoutError):
        raise FetchError(
            f"{current.host} took longer than {policy.timeout_s:g} s; "
            "try again, or send the picture itself"
        ) from None
    except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise FetchError(
            f"cannot fetch from {current.host}: {why}; check the URL, or send the picture itself"
        ) from error
    raise FetchError(
        f"the URL leads through more than {MAX_REDIRECTS} redirects; give the one at their end"
    )


def _parse(url: str, base: httpx.URL | None = None) -> httpx.URL:
    """Messages name hosts only: paths and queries may hold secrets."""
    try:
        parsed = base.join(url) if base else httpx.URL(url)
        # Higher ports would wrap around; % is how characters come in that no host has.
        if not 0 < (parsed.port or 80) < 65536 or "%" in parsed.host:
            raise ValueError
    except (httpx.InvalidURL, ValueError):
        raise FetchError("the URL is malformed; expected https://HOST/PATH") from None
    if parsed.scheme not in _PORTS:
        raise FetchError(f"URLs of scheme {parsed.scheme[:20]!r} are not fetched; use https")
    if parsed.userinfo:
        raise FetchError("the URL holds a user name or password; send the picture itself instead")
    if not parsed.host:
        raise FetchError("the URL names no host; expected https://HOST/PATH")
    return parsed


def _check_allowed(url: httpx.URL, policy: FetchPolicy) -> None:
    if not policy.public and not policy.names(url.host):
        raise FetchError(
            f"fetching from {url.host} is not allowed; send the picture itself, "
            f"or have the server started with --allow-url-host {url.host}"
        )


def _request(url: httpx.URL, policy: FetchPolicy, deadline: _Deadline) -> tuple[bytes, str | None]:
    """The content, or where it is said to be."""
    headers = [
        (b"Host", url.netloc),
        (b"User-Agent", b"qwink"),
        (b"Accept", b"image/*,*/*;q=0.1"),
        (b"Accept-Encoding", b"identity"),  # nothing that could swell while it is unpacked
        (b"Connection", b"close"),
    ]
    target = httpcore.URL(
        scheme=url.raw_scheme,
        host=url.raw_host,
        port=url.port or _PORTS[url.scheme],
        target=url.raw_path,
    )
    tls = _tls() if url.scheme == "https" else None
    network = _Network(policy, deadline)
    with (
        httpcore.ConnectionPool(tls, network_backend=network) as pool,
        pool.stream("GET", target, headers=headers) as response,
    ):
        # The first of several; a proxy and we would otherwise not see the same.
        answered = {key.lower(): value for key, value in reversed(response.headers)}
        location = answered.get(b"location")
        if response.status in _REDIRECTS and location is not None:
            return b"", location.decode("utf-8", "replace")
        if response.status != 200:
            raise FetchError(
                f"{url.host} answered with status {response.status}; "
                "check that the URL opens without a login"
            )
        if answered.get(b"content-encoding", b"identity").lower() != b"identity":
            raise FetchError(f"{url.host} sent compressed content; send the picture itself")
        return _read(response, answered, url.host, policy.max_bytes), None


def _read(
    response: httpcore.Response, headers: dict[bytes, bytes], host: str, max_bytes: int
) -> bytes:
    content = bytearray()
    announced = headers.get(b"content-length", b"")
    # What is announced may be a lie; what has come is not.
    too_large = announced.isdigit() and int(announced) > max_bytes
    for chunk in () if too_large else response.iter_stream():
        content += chunk
        if len(content) > max_bytes:
            too_large = True
            break
    if too_large:
        limit = f"{max_bytes / (1 << 20):g} MiB"
        raise FetchError(f"{host} sends more than {limit}; save the picture smaller")
    return bytes(content)


@cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()


class _Deadline:
    """A point in time that all steps share."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds, above 0. Raises TimeoutError."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _Network(httpcore.NetworkBackend):
    """Connects to checked addresses only. Raises FetchError for a host that has others."""

    def __init__(self, policy: FetchPolicy, deadline: _Deadline) -> None:
        self._policy, self._deadline = policy, deadline
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        named = self._policy.names(host)
        addresses = _resolve(host, port, self._deadline)
        for address in addresses:
            if not is_public(address) and not (named and is_private(address)):
                way_out = "" if named else f", or start the server with --allow-url-host {host}"
                raise FetchError(
                    f"{host} leads to an address that is not public; "
                    f"send the picture itself{way_out}"
                )
        failure: Exception | None = None
        for address in addresses:
            try:
                stream = self._sockets.connect_tcp(
                    address, port, self._deadline.left(), None, socket_options
                )
            except httpcore.ConnectError as error:  # such as IPv6 where there is none
                failure = error
            else:
                return _Stream(stream, self._deadline)
        raise failure or httpcore.ConnectError("the name has no address")


class _Stream(httpcore.NetworkStream):
    """A connection whose every step ends with the deadline: slow dripping gains no time."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: _Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left())
        return _Stream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _resolve(host: str, port: int, deadline: _Deadline) -> list[str]:
    """The addresses of a name, in the order to try them.

    In a thread, since the system's look-up knows no timeout.
    """
    answers: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answers.put(addresses_of(host, port))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=look_up, name="qwink-resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left())
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, list):
        return answer
    raise FetchError(f"there is no host {host}; check the URL") from answer


def addresses_of(host: str, port: int) -> list[str]:
    """What the system's resolver says. Raises OSError or UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _canonical(host: str) -> str:
    """A host as URLs spell it: lower case, punycode, no brackets, no final dot."""
    host = host.strip("[]").rstrip(".").lower()
    try:
        return httpx.URL(scheme="http", host=host).raw_host.decode("ascii")
    except (httpx.InvalidURL, ValueError):
        return host
