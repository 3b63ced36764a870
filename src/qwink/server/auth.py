"""Access control: API keys, or without keys the Host and Origin checks.

Without keys, requests from web pages of other sites are refused.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from qwink.server.background import BACKGROUND
from qwink.server.failures import Failure
from qwink.server.logs import respond
from qwink.server.options import ServerOptions

_OPEN = ("/", "/health", "/ready", "/docs", "/openapi.json")
_STATIC = "/static/"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


CLIENT = "qwink.client"  # in the scope


def client_of(scope: Scope) -> str:
    """What tells clients apart: a digest of the API key; empty on a server without keys."""
    client: str = scope.get(CLIENT, "")
    return client


class Keys:
    """The valid API keys. Stored as SHA-256 digests, so that all comparisons have one length."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accept(self, key: bytes) -> bool:
        """Whether `key` is valid. Takes the same time for all keys, against timing attacks."""
        digest, found = _digest(key), False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        return found


class Guard:
    """Middleware that refuses requests without a valid key.

    On a server without keys, it refuses requests made by web pages of other sites.
    """

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app = app
        self._keys = Keys(options.api_keys)
        self._open = _OPEN + (("/metrics",) if options.open_metrics else ())
        self._origins = options.allow_origin
        # DNS rebinding: a foreign page points its own host name at 127.0.0.1. Its requests then
        # carry that name as Host, so only known names are accepted.
        self._named = tuple(name.lower() for name in options.allow_host)
        self._hosts = (*_LOOPBACK, *self._named) if options.host in _LOOPBACK else ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        failure = self._refusal(scope) if scope["type"] == "http" else None
        if failure is None:
            await self._app(scope, receive, send)
        else:
            await respond(failure, scope, receive, send)

    def _refusal(self, scope: Scope) -> Failure | None:
        headers = Headers(scope=scope)
        if BACKGROUND in scope:  # its batch was let in
            return None
        if not self._keys:
            return self._foreign(headers, scope)
        if scope["path"] in self._open or scope["path"].startswith(_STATIC):
            return None
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._keys.accept(key.strip().encode("latin-1")):
            scope[CLIENT] = _digest(key.strip().encode("latin-1")).hex()
            return None
        message = "no valid API key; send Authorization: Bearer KEY"
        return Failure(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

    def _foreign(self, headers: Headers, scope: Scope) -> Failure | None:
        host, method = headers.get("host"), scope["method"]
        # HTTP/1.0 has no Host; load balancers probe with it. Browsers always send one.
        probe = host is None and scope["http_version"] == "1.0"
        if self._hosts and not probe and _hostname(host or "") not in self._hosts:
            message = "this host name is not allowed; see --allow-host"
            return Failure(403, message, "host_not_allowed")
        origin = headers.get("origin")
        if method in ("GET", "HEAD", "OPTIONS") or origin is None:
            return None
        if _host_of(origin) == host or origin in self._origins or "*" in self._origins:
            return None
        # Behind a proxy that sends its own Host, the page's origin is another one. The browser
        # knows that they are the same (it says so on https and localhost, and no page can forge
        # it), or the origin's name was given with --allow-host.
        if headers.get("sec-fetch-site") == "same-origin":
            return None
        if _hostname(_host_of(origin) or "") in self._named:
            return None
        message = (
            "web pages of this origin are not allowed; see --allow-origin, or --allow-host for "
            "the page itself behind a proxy"
        )
        return Failure(403, message, "origin_not_allowed")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
