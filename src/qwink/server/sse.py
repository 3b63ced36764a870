"""Sends an answer as server-sent events: one JSON document per `data:` line."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from qwink.server.failures import Failure, as_failure
from qwink.server.logs import Record
from qwink.server.service import AnswerEvents
from qwink.types import Event, Result, TokenLogprob

logger = logging.getLogger(__name__)

_KEEP_ALIVE_S = 15.0  # proxies drop idle connections, and encoding an image may take longer
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # otherwise nginx buffers the stream
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer with the log-probabilities of its tokens, if they were asked for."""

    result: Result
    logprobs: tuple[TokenLogprob, ...] = ()


class Formatter(Protocol):
    """Formats the answers to one request as an endpoint's JSON.

    A document with the key `type` is sent as an event of that type.
    """

    last: bytes  # what follows the last event

    def document(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The whole answer, or several answers to the same request."""
        ...

    def opening(self) -> Iterable[dict[str, Any]]:
        """What a stream sends before anything is known of the answer."""
        ...

    def chunks(self, event: Event, number: int) -> Iterable[dict[str, Any]]:
        """What a stream sends for an event of answer `number`."""
        ...

    def failed(self, failure: Failure) -> dict[str, Any]:
        """What a stream sends if the answer breaks off."""
        ...


class EventStream(Response):
    """Streams the chunks of an answer until it ends, fails, or the client disconnects."""

    def __init__(
        self,
        events: AnswerEvents,
        formatter: Formatter,
        record: Record,
        send_timeout: float,
        end: Callable[[], None],
    ) -> None:
        """`end` is called when the stream has ended, for any reason."""
        super().__init__(None, 200, _HEADERS)
        del self.headers["content-length"]
        self._events, self._formatter, self._record, self._end = events, formatter, record, end
        self._send_timeout = send_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = asyncio.ensure_future(self._write(send))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({writer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not writer.done():
                self._record.client_gone = True
                return
            writer.result()
        finally:
            self._events.close()
            self._end()
            writer.cancel()
            gone.cancel()
            await asyncio.gather(writer, gone, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        try:
            await self._write_chunks(send)
        except _TooSlow:
            self._record.details["broke_off"] = "client_too_slow"
            raise
        except Exception as error:
            failure = as_failure(error)
            if failure.code == "internal_error":
                logger.exception("a stream failed", extra={"request_id": self._record.request_id})
            self._record.details["broke_off"] = failure.code
            await self._put(send, _event(self._formatter.failed(failure)))
        await self._put(send, self._formatter.last, more=False)

    async def _write_chunks(self, send: Send) -> None:
        for chunk in self._formatter.opening():
            await self._put(send, _event(chunk))
        num_left = self._events.count
        while num_left:
            try:
                async with asyncio.timeout(_KEEP_ALIVE_S):
                    number, event = await self._events.next()
            except TimeoutError:
                await self._put(send, b": keep-alive\n\n")
                continue
            for chunk in self._formatter.chunks(event, number):
                await self._put(send, _event(chunk))
            num_left -= event.result is not None

    async def _put(self, send: Send, body: bytes, more: bool = True) -> None:
        try:
            async with asyncio.timeout(self._send_timeout):
                await send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise _TooSlow from None


class _TooSlow(Exception):
    """The client did not receive a piece of the response within `send_timeout`."""


def _event(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    kind = document.get("type")
    name = b"event: %s\n" % kind.encode() if kind else b""
    return b"%sdata: %s\n\n" % (name, text.encode())


async def disconnected(receive: Receive) -> None:
    """Returns when the client has disconnected. The body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass
