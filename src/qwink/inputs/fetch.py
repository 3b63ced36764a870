"""Fetch pictures from URLs, for a server: nothing is fetched unless an option allows it.

The URL comes from a client, but the connection is made from inside the server's network. So:

- Only http and https, without credentials in the URL; proxies of the environment are not used.
- `FetchPolicy` names hosts and ports, or allows all public hosts at ports 80 and 443.
- Every address of a host must be public. The connection goes to the address that was checked, so
  that a second look-up cannot lead elsewhere. TLS still verifies the name.
- A host that the policy names may also have a loopback or private address. Link-local addresses,
  where cloud providers give out credentials, are never fetched from.
- Redirects are followed a few times; each target is checked like the first URL.
- Size and total time are limited, whatever the other side announces and however slowly it sends.
- One message for a closed, silent, unknown or refusing port, and one for a host that does not
  exist or is not public: messages must not let clients scan the server's network. The log has the
  reason, without the URL.

The content may be anything; `open_image` looks at its bytes, not at its name or type.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import httpcore
import httpx

from qwink.errors import FetchError, OptionError
from qwink.inputs.addresses import is_private, is_public
from qwink.inputs.hosts import WEB_PORTS, AllowedHost, parse_host, spell_host
from qwink.inputs.network import Deadline, Network

_LOG = logging.getLogger(__name__)

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Which URLs may be fetched, and with which limits. By default none.

    Raises OptionError for a host that no URL can match.
    """

    hosts: frozenset[str] = frozenset()
    """Each is HOST (ports 80 and 443) or HOST:PORT (that port), and allows only that host."""
    public: bool = False
    """Allow ports 80 and 443 of all hosts with public addresses."""
    max_bytes: int = 32 << 20
    """Largest picture, in bytes."""
    timeout_s: float = 10.0
    """Seconds for look-up, connections, redirects and content together."""
    _allowed: tuple[AllowedHost, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        allowed = tuple(parse_host(host, "hosts") for host in sorted(self.hosts))
        object.__setattr__(self, "_allowed", allowed)

    def names(self, host: str, port: int) -> bool:
        """Whether `hosts` allow this host at this port."""
        return any(allowed.matches(host, port) for allowed in self._allowed)


def fetch(url: str, policy: FetchPolicy) -> bytes:
    """The content of a URL.

    Raises FetchError: not allowed, unreachable, too large, too slow, or not answered with 200.
    """
    deadline = Deadline(policy.timeout_s)
    current = _parse(url)
    try:
        for _ in range(MAX_REDIRECTS + 1):
            _check_allowed(current, policy)
            content, location = _request(current, policy, deadline)
            if location is None:
                return content
            current = _parse(location, current)
    except _NETWORK_ERRORS as error:
        _LOG.info("a picture was not fetched", extra={"fields": {"reason": _reason(error)}})
        place = spell_host(current.host, _port(current))
        raise FetchError(
            f"{place} gave no picture within {policy.timeout_s:g} s; "
            "check that the URL opens without a login, or send the picture itself"
        ) from error
    raise FetchError(
        f"the URL leads through more than {MAX_REDIRECTS} redirects; give the final URL"
    )


class _WrongStatus(Exception):
    """The host answered with something else than 200."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"status {status}")


# ValueError: numbers that a response announces and Python refuses to read.
_NETWORK_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    OSError,
    ValueError,
    _WrongStatus,
)


def _reason(error: BaseException) -> str:
    """What to log: without the URL, and without text that the other side sent."""
    if isinstance(error, _WrongStatus):
        return str(error)
    if isinstance(error, httpcore.TimeoutException | TimeoutError):
        return "timeout"
    causes: BaseException | None = error
    while causes is not None:
        if isinstance(causes, ssl.SSLCertVerificationError):
            return f"certificate: {causes.verify_message}"
        if isinstance(causes, OSError) and causes.strerror and not isinstance(causes, ssl.SSLError):
            return causes.strerror
        causes = causes.__cause__ or causes.__context__
    return type(error).__name__


def _parse(url: str, base: httpx.URL | None = None) -> httpx.URL:
    """Raises FetchError with the host only: paths and queries may hold secrets."""
    try:
        parsed = base.join(url) if base else httpx.URL(url)
        # Ports above 65535 would wrap around. A % escapes characters that no host name has.
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


def _port(url: httpx.URL) -> int:
    return url.port or _PORTS[url.scheme]


def _check_allowed(url: httpx.URL, policy: FetchPolicy) -> None:
    host, port = url.host, _port(url)
    if policy.names(host, port) or (policy.public and port in WEB_PORTS):
        return
    place = spell_host(host, port)
    raise FetchError(
        f"fetching from {place} is not allowed; send the picture itself{_way_out(place)}"
    )


def _check_addresses(policy: FetchPolicy, host: str, port: int, addresses: Sequence[str]) -> None:
    named = policy.names(host, port)
    if addresses and all(is_public(ip) or (named and is_private(ip)) for ip in addresses):
        return
    missing = f"host {host} at a public or private address" if named else f"public host {host}"
    way_out = "" if named else _way_out(spell_host(host, port))
    raise FetchError(f"there is no {missing}; check the URL, or send the picture itself{way_out}")


def _way_out(place: str) -> str:
    """The option that allows a host, if any does."""
    try:
        parse_host(place, "hosts")
    except OptionError:
        return ""
    return f", or have the server started with --allow-url-host {place}"


def _request(url: httpx.URL, policy: FetchPolicy, deadline: Deadline) -> tuple[bytes, str | None]:
    """The content and None, or nothing and the location of a redirect."""
    headers = [
        (b"Host", url.netloc),
        (b"User-Agent", b"qwink"),
        (b"Accept", b"image/*,*/*;q=0.1"),
        (b"Accept-Encoding", b"identity"),  # compressed content could expand without limit
        (b"Connection", b"close"),
    ]
    target = httpcore.URL(
        scheme=url.raw_scheme,
        host=url.raw_host,
        port=_port(url),
        target=url.raw_path,
    )
    tls = _tls() if url.scheme == "https" else None
    network = Network(partial(_check_addresses, policy), deadline)
    with (
        httpcore.ConnectionPool(tls, network_backend=network) as pool,
        pool.stream("GET", target, headers=headers) as response,
    ):
        # Of repeated headers the first counts, as in proxies.
        answered = {key.lower(): value for key, value in reversed(response.headers)}
        location = answered.get(b"location")
        if response.status in _REDIRECTS and location is not None:
            return b"", location.decode("utf-8", "replace")
        if response.status != 200:
            raise _WrongStatus(response.status)
        if answered.get(b"content-encoding", b"identity").lower() != b"identity":
            raise FetchError(f"{url.host} sent compressed content; send the picture itself")
        return _read(response, answered, url.host, policy.max_bytes), None


def _read(
    response: httpcore.Response, headers: dict[bytes, bytes], host: str, max_bytes: int
) -> bytes:
    content = bytearray()
    announced = headers.get(b"content-length", b"")
    # The announced length may be wrong, so the received bytes are counted too.
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
