"""The app in front of the replicas: checks a request, chooses its replica, passes the answer on.

Files and batches are kept here. The requests of batches go to all replicas, like those of clients.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from qwink.cluster.destination import Destination, content_key, destination_of
from qwink.cluster.metrics import merged
from qwink.cluster.replica import Call, Headers, Missing, Part, Start
from qwink.errors import QwinkError
from qwink.server.app import add_errors, add_middleware
from qwink.server.auth import CLIENT, client_of
from qwink.server.background import BACKGROUND
from qwink.server.failures import Failure, not_ready, shutting_down
from qwink.server.files import file_routes
from qwink.server.forms import file_in
from qwink.server.job_runner import JobRunner
from qwink.server.jobs import job_routes
from qwink.server.limits import BODILESS, body_of
from qwink.server.logs import record_of
from qwink.server.metrics import Metrics
from qwink.server.options import ServerOptions
from qwink.server.patience import Patience
from qwink.server.sse import disconnected

_ACCEPT_S = 30.0  # time for a replica to take a request
_ATTEMPTS = 3  # at other replicas, while nothing has been sent
_AGAIN_S = 5.0
_LARGE_BYTES = 1 << 18  # bodies that are looked at in a thread
_ANSWERS = ("/v1/chat/completions", "/v1/responses")
_SCOPE = (
    "type",
    "asgi",
    "http_version",
    "method",
    "path",
    "raw_path",
    "root_path",
    "query_string",
    "scheme",
    "server",
    "client",
)
# The body is passed on whole and unpacked.
_OF_THE_BODY = (b"content-length", b"content-encoding", b"transfer-encoding", b"expect")

Parts = AsyncGenerator[Part, None]


class ReplicaLost(QwinkError):
    """A replica ended, or could not be reached, before it had answered."""


class Replicas(Protocol):
    """The replicas, through Ray or in a test."""

    def answer(self, call: Call, destination: Destination) -> Parts:
        """The response of the replica for `destination`, as `Replica.answer`.

        Raises ReplicaLost. Closing it cancels the request.
        """
        ...

    async def metrics(self) -> dict[str, bytes]:
        """The metrics of each replica by its name."""
        ...

    async def upload(self, key: str, client: str) -> bytes | None:
        """A client's uploaded picture, if any replica has it."""
        ...

    async def answer_everywhere(self, call: Call) -> list[tuple[Start, bytes]]:
        """The response of each replica. Raises ReplicaLost if there is none."""
        ...


class Traffic:
    """The requests that are passed on, and whether new ones are refused.

    It is what the runner of batches asks whether the replicas can answer.
    """

    loaded = alive = True

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.draining = False
        self.arriving = Patience()
        self.answering = Patience()
        self.num_active = 0  # without those of batches
        self.num_silent = 0  # of these, without a response yet

    @property
    def live_waits(self) -> bool:
        return self.num_silent > 0

    def drain(self) -> None:
        """Refuse new requests."""
        self.draining = True
        self.arriving.end()

    def end(self) -> None:
        """End the requests that are still answered."""
        self.answering.end()


def create_front(replicas: Replicas, options: ServerOptions, num_replicas: int = 1) -> FastAPI:
    """`num_replicas`: how many replicas there are at most. `app.state.traffic` is its Traffic."""
    room = replace(options, max_running=options.max_running * num_replicas)
    traffic = Traffic(room)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        starting = asyncio.create_task(start())
        yield
        starting.cancel()
        await runner.close()

    async def start() -> None:
        while not runner.start():  # the front that this one replaces has the files
            await asyncio.sleep(_AGAIN_S)

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.traffic = traffic
    runner = JobRunner(app, traffic, options.files_dir)
    app.include_router(file_routes(runner, options))
    app.include_router(job_routes(runner))

    @app.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> Response:
        return JSONResponse({"status": "ok"})

    @app.api_route("/metrics", methods=["GET", "HEAD"])
    async def metrics() -> Response:
        pages = await replicas.metrics()
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(merged({**pages, "front": own.text()}), media_type=kind)

    app.mount("/", Passing(replicas, traffic))
    add_errors(app, lambda: 1)
    own = Metrics()
    add_middleware(app, options, traffic.arriving, own, frozenset(), num_replicas)
    return app


class Passing:
    """Passes requests on to a replica, and the responses back."""

    def __init__(self, replicas: Replicas, traffic: Traffic) -> None:
        self._replicas, self._traffic = replicas, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        if self._traffic.draining and BACKGROUND not in scope:
            raise shutting_down()
        call, destination = await _call(scope)
        if _of_images(scope) and scope["method"] in ("GET", "HEAD"):
            await (await self._stored(call))(scope, receive, send)
            return
        response = _Passed(self._traffic, scope, send, call)
        background = BACKGROUND in scope
        self._traffic.num_active += not background
        self._traffic.num_silent += not background
        try:
            await self._while_connected(self._pass(destination, response), scope, receive)
        except asyncio.CancelledError:  # how Ray Serve says that the client has gone
            record_of(scope).client_gone = True
            raise
        finally:
            self._traffic.num_active -= not background
            self._traffic.num_silent -= not background and not response.status

    async def _stored(self, call: Call) -> Response:
        """Which uploads are stored on any replica."""
        try:
            found = await self._replicas.answer_everywhere(call)
        except ReplicaLost:
            raise _none_free() from None
        start, body = min(found, key=lambda response: response[0].status)
        if start.status == 200 and body:
            by_id = {one["id"]: one for _, text in found for one in json.loads(text)["data"]}
            return JSONResponse({"object": "list", "data": list(by_id.values())})
        return Response(body, start.status, media_type="application/json" if body else None)

    async def _while_connected(self, work: Awaitable[None], scope: Scope, receive: Receive) -> None:
        working, gone = asyncio.ensure_future(work), asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            else:
                record_of(scope).client_gone = True
        finally:
            working.cancel()
            gone.cancel()
            await asyncio.gather(working, gone, return_exceptions=True)

    async def _pass(self, destination: Destination, response: _Passed) -> None:
        missing = await self._try(destination, response)
        if missing:
            client = response.call.client
            contents = {key: await self._replicas.upload(key, client) for key in missing}
            # What no replica has is refused by the app.
            found = {key: content or b"" for key, content in contents.items()}
            response.call.uploads = {**response.call.uploads, **found}
            await self._try(destination, response)

    async def _try(self, destination: Destination, response: _Passed) -> tuple[str, ...]:
        """Pass the response of one of a few replicas on. Returns the uploads that a replica lacks
        instead of answering.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            parts = self._replicas.answer(response.call, destination)
            try:
                return await self._pass_parts(parts, response)
            except ReplicaLost:
                failure = _lost()
                again = attempt < _ATTEMPTS
            except TimeoutError:
                failure = shutting_down() if self._traffic.answering.over else _none_free()
                again = False
            finally:
                await parts.aclose()
            response.record.elsewhere = False
            if response.status:
                await response.break_off(failure)
                return ()
            if not again:
                raise failure
        raise AssertionError

    async def _pass_parts(self, parts: Parts, response: _Passed) -> tuple[str, ...]:
        """Raises TimeoutError if no replica takes the request, or when all answers are ended."""
        async with asyncio.timeout(_ACCEPT_S):
            await anext(parts)
        response.record.elsewhere = True
        async with self._traffic.answering.limit(float("inf")):
            async for part in parts:
                if isinstance(part, Missing):
                    return part.keys
                if isinstance(part, Start):
                    await response.start(part)
                elif part is not None:
                    await response.add(part)
        await response.end()
        return ()


class _Passed:
    """The response to the client. `status` is 0 until it has begun; until then `call` can be made
    again.
    """

    def __init__(self, traffic: Traffic, scope: Scope, send: Send, call: Call) -> None:
        self._traffic, self._scope, self._send = traffic, scope, send
        self._is_stream = False
        self.status, self.call, self.record = 0, call, record_of(scope)

    async def start(self, start: Start) -> None:
        self.status = start.status
        self.call.drop()
        if self._scope["method"] not in BODILESS:
            body_of(self._scope).release()
        self._traffic.num_silent -= BACKGROUND not in self._scope
        self._is_stream = (b"content-type", b"text/event-stream; charset=utf-8") in start.headers
        # The front's own log adds the same id.
        headers = [(name, value) for name, value in start.headers if name != b"x-request-id"]
        message = {"type": "http.response.start", "status": start.status, "headers": headers}
        await self._send(message)

    async def add(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def break_off(self, failure: Failure) -> None:
        """End a response that has begun: a stream by an event with the error. Of any other one only
        the connection can be closed.
        """
        self.record.details["broke_off"] = failure.code
        if not self._is_stream:
            raise failure
        document = failure.document()
        if self._scope["path"].endswith("/responses"):
            error = document["error"]
            document = {"type": "error", **error, "sequence_number": 0, "error": error}
            await self.add(b"event: error\ndata: %s\n\n" % json.dumps(document).encode())
        else:
            await self.add(b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(document).encode())
        await self.end()


def _lost() -> Failure:
    message = "the replica that answered has ended; ask again"
    return Failure(503, message, "replica_lost", headers={"Retry-After": "1"})


def _none_free() -> Failure:
    return not_ready("no replica takes requests; try again in a moment")


async def _call(scope: Scope) -> tuple[Call, Destination]:
    body = body_of(scope).take() if scope["method"] not in BODILESS else b""
    content = bytes(body)
    destination = await _destination(scope, content)
    record = record_of(scope)
    headers: Headers = [
        (name, value)
        for name, value in scope["headers"]
        if name not in (*_OF_THE_BODY, b"x-request-id")
    ]
    headers.append((b"x-request-id", record.request_id.encode()))
    if content:
        headers.append((b"content-length", str(len(content)).encode()))
    passed: dict[str, Any] = {name: scope[name] for name in _SCOPE if name in scope}
    marks: dict[str, Any] = {}
    if BACKGROUND in scope:
        marks = {BACKGROUND: scope[BACKGROUND] - time.monotonic(), CLIENT: scope[CLIENT]}
    uploads = dict.fromkeys(destination.uploads)
    call = Call({**passed, "headers": headers}, content, marks, uploads, client_of(scope))
    return call, destination


async def _destination(scope: Scope, body: bytes) -> Destination:
    path = scope["path"]
    if path in _ANSWERS:
        if len(body) < _LARGE_BYTES:
            return destination_of(body)
        return await asyncio.to_thread(destination_of, body)
    if not _of_images(scope):
        return Destination()
    try:
        content = await file_in(Request(scope), body)
    except Failure:  # the replica refuses it too
        return Destination()
    return Destination(await asyncio.to_thread(content_key, content))


def _of_images(scope: Scope) -> bool:
    path: str = scope["path"]
    return path == "/v1/images" or path.startswith("/v1/images/")
