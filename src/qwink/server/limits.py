"""Limits on a request's body: its size, its time, and the memory of all bodies together."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import h11
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from qwink.server.encodings import unpacker_of
from qwink.server.failures import Failure, shutting_down
from qwink.server.logs import record_of, respond
from qwink.server.options import ServerOptions
from qwink.server.patience import Patience

HEADER_TIMEOUT_S = 15.0
_BYTES_PER_SECOND = 32_000  # the slowest rate at which a body may arrive
_BODIES_AT_ONCE = 8  # all bodies in memory may take as much as this many of the largest size
_KEY = "qwink_body"


# Methods of requests whose bodies are not read.
BODILESS = ("GET", "HEAD", "OPTIONS")


class ClientGone(Exception):
    """The client disconnected before the response was complete."""


class Bodies:
    """The number of bytes of all bodies in memory, and their limit."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.num_bytes = max_bytes, 0


class Body:
    """The body of one request. `bodies` counts its bytes until `release`."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._content = bytearray()
        self._num_counted = 0

    def add(self, chunk: bytes) -> None:
        """Append a chunk. Raises Failure if all bodies together exceed the limit."""
        if self._bodies.num_bytes + len(chunk) > self._bodies.max_bytes:
            raise _too_many()
        self._bodies.num_bytes += len(chunk)
        self._num_counted += len(chunk)
        self._content += chunk

    def __len__(self) -> int:
        return len(self._content)

    def take(self) -> bytearray:
        """Return the content and drop it here.

        Its bytes stay counted until `release`, since the parsed request is as large.
        """
        content, self._content = self._content, bytearray()
        return content

    def release(self) -> None:
        """Drop the content and its count. Call it when the parsed request is freed."""
        self._content = bytearray()
        self._bodies.num_bytes -= self._num_counted
        self._num_counted = 0


def body_of(scope: Scope) -> Body:
    """The body of the request with this scope, which `BodyLimit` has read."""
    body: Body = scope[_KEY]
    return body


class BodyLimit:
    """Middleware that reads a whole body, within the limits, before the app gets the request.

    The app gets the body from `body_of`.
    """

    def __init__(
        self, app: ASGIApp, options: ServerOptions, arriving: Patience, num_servers: int = 1
    ) -> None:
        """`num_servers`: how many servers answer the requests, each with bodies of its own."""
        self._app, self._max, self._timeout = app, options.max_body, options.body_timeout
        self._arriving = arriving
        self.bodies = Bodies(num_servers * _BODIES_AT_ONCE * options.max_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in BODILESS:
            await self._app(scope, receive, send)
            return
        body = scope[_KEY] = Body(self.bodies)
        try:
            try:
                await self._read(Headers(scope=scope), receive, body)
            except Failure as failure:
                body.release()  # the client may take long to read the response
                await respond(failure, scope, receive, send)
                return
            record_of(scope).details["bytes_in"] = len(body)
            await self._app(scope, receive, send)
        except ClientGone:
            record_of(scope).client_gone = True
        finally:
            body.release()

    async def _read(self, headers: Headers, receive: Receive, body: Body) -> None:
        """Fill `body`, unpacked. A body that is too large is read up to twice the limit and
        discarded: a client rarely reads the error if the connection closes while it sends. The
        limit holds for the body as it is sent, and for its unpacked content.
        """
        unpacker = unpacker_of(headers.get("content-encoding", ""))
        declared = headers.get("content-length", "")
        if (declared.isdecimal() and int(declared) > 2 * self._max) or "expect" in headers:
            self._check(int(declared) if declared.isdecimal() else 0)
        received, start = 0, time.monotonic()
        while True:
            allowed = self._timeout + received / _BYTES_PER_SECOND
            try:
                async with self._arriving.limit(start + allowed - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                raise (_stopping() if self._arriving.over else _too_slow()) from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            received += len(chunk)
            if received <= self._max:
                for piece in unpacker.unpack(chunk):
                    self._check(len(body) + len(piece))
                    body.add(piece)
                    await asyncio.sleep(0)  # a small chunk can hold much: let others run
            elif received > 2 * self._max:
                self._check(received)
            if not message.get("more_body", False):
                self._check(received)
                unpacker.finish()
                return

    def _check(self, size: int) -> None:
        if size > self._max:
            message = f"the body has more than {self._max >> 20} MiB; send smaller pictures"
            raise Failure(413, message, "body_too_large", headers={"Connection": "close"})


def _stopping() -> Failure:
    failure = shutting_down()
    failure.headers["Connection"] = "close"
    return failure


def _too_slow() -> Failure:
    message = "the body took too long to arrive"
    headers = {"Connection": "close", "x-should-retry": "false"}
    return Failure(408, message, "body_timeout", headers=headers)


def _too_many() -> Failure:
    headers = {"Connection": "close", "Retry-After": "5"}
    return Failure(
        429,
        "too many large bodies at the same time; try again in 5 s",
        "overloaded",
        headers=headers,
    )


class HttpProtocol(H11Protocol):
    """uvicorn's protocol with a timeout for request headers, which uvicorn lacks."""

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect_headers()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_TIMEOUT_S, self._give_up)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _give_up(self) -> None:
        self._header_timer = None
        if self.conn.their_state is h11.IDLE:
            self.transport.abort()
