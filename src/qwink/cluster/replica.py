"""One replica: the app of `qwink serve` with its model, called through Ray instead of a socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.types import Message, Scope

from qwink.cache.shared import SharedImages
from qwink.cluster.destination import Destination
from qwink.server.app import create_app
from qwink.server.background import BACKGROUND
from qwink.server.logs import set_up
from qwink.server.options import ServerOptions, store_of
from qwink.server.run import load_model
from qwink.server.service import ModelService
from qwink.settings import Settings

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Call:
    """A request to a replica: what the app needs of its ASGI scope, and its body.

    Ray keeps it until the response has ended; `drop` frees what is large.

    `marks` are entries of the scope that no client can set, such as those of batches. A deadline
    among them counts from now on, since each machine has another clock. `uploads`: the keys of
    uploaded pictures that the request names, each with its content if the caller has it. `client`
    is what `auth.client_of` gives, whose uploads they are.
    """

    scope: Mapping[str, Any]
    body: bytes
    marks: Mapping[str, Any]
    uploads: Mapping[str, bytes | None]
    client: str = ""

    def drop(self) -> None:
        self.body, self.uploads = b"", {}


@dataclass(frozen=True, slots=True)
class Start:
    """The status and headers of a response."""

    status: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class Missing:
    """Instead of a response: uploaded pictures that this replica does not have."""

    keys: tuple[str, ...]


Part = Start | bytes | Missing | None


class Replica:
    """A deployment of Ray Serve."""

    async def __init__(self, options: ServerOptions) -> None:  # type: ignore[misc]  # of Serve
        """Returns when the model is loaded. Raises what stopped it from loading."""
        set_up()
        # Files and batches are kept by the front, which sends the requests of batches here.
        options = replace(options, files_dir=None)
        wanted = store_of(options)
        shared = None if wanted is None else SharedImages.open(wanted)
        load = partial(load_model, options, Settings.from_environment(), shared=shared)
        self._app = create_app(load, options, shared)
        self._service: ModelService = self._app.state.service
        self._running: set[asyncio.Task[None]] = set()
        self._lifespan = self._app.router.lifespan_context(self._app)
        await self._lifespan.__aenter__()
        while not self._service.loaded:
            if self._service.error is not None:
                raise self._service.error
            await asyncio.sleep(0.02)

    async def check_health(self) -> None:
        """Called by Ray Serve, which replaces the replica if it raises."""
        if self._service.error is not None:
            raise self._service.error

    async def metrics(self) -> tuple[str, bytes]:
        """The name of this replica and its metrics, in the text format of Prometheus."""
        from ray.serve import get_replica_context

        name = get_replica_context().replica_id.unique_id
        return name, self._service.metrics.text()

    async def upload(self, key: str, client: str) -> bytes | None:
        """A client's uploaded picture or video, if this replica has it."""
        found = self._service.uploads.kept(key, client)
        return None if found is None else found.content

    async def answer_whole(self, call: Call) -> tuple[Start, bytes]:
        """The response to a request whose answer is short."""
        start, body = Start(500, []), b""
        async for part in self.answer(call, Destination()):
            if isinstance(part, Start):
                start = part
            elif isinstance(part, bytes):
                body += part
        return start, body

    async def answer(self, call: Call, destination: Destination) -> AsyncIterator[Part]:
        """The response: None at once, as a sign that the replica has the request, then its start,
        then its body in pieces. `destination` is for the request router. If the caller cancels, the
        app learns that the client has gone.

        Only Missing follows None if an uploaded picture is not here and not in the call.
        """
        yield None
        missing = await self._keep(call.uploads, call.client)
        if missing:
            yield Missing(missing)
            return
        response = _Response(call.body)
        call.drop()
        marks = dict(call.marks)
        if BACKGROUND in marks:
            marks[BACKGROUND] += time.monotonic()
        scope = {**call.scope, **marks}
        task = asyncio.create_task(response.run(self._app, scope))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            while (part := await response.next()) is not None:
                yield part
            await task  # raises what broke the response off
        finally:
            response.gone.set()

    async def _keep(self, uploads: Mapping[str, bytes | None], client: str) -> tuple[str, ...]:
        """Store a client's uploads that are not here. Returns those without content."""
        store = self._service.uploads
        missing = {
            key: content for key, content in uploads.items() if store.kept(key, client) is None
        }
        for content in missing.values():
            if content:
                await self._service.work(store.add, content, client)
        return tuple(key for key, content in missing.items() if content is None)

    async def __del__(self) -> None:
        """Called by Ray Serve when the last response has ended."""
        if hasattr(self, "_lifespan"):
            await self._lifespan.__aexit__(None, None, None)


class _Response:
    """What the app sends for one request, in parts."""

    def __init__(self, body: bytes) -> None:
        self.gone = asyncio.Event()  # the client, or nobody reads any more
        self._body: bytes | None = body
        self._parts: asyncio.Queue[Start | bytes | None] = asyncio.Queue()

    async def run(self, app: Any, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._parts.put_nowait(None)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
            self._parts.put_nowait(Start(message["status"], headers))
        elif message.get("body"):
            self._parts.put_nowait(bytes(message["body"]))

    async def next(self) -> Start | bytes | None:
        """The next part; pieces of the body that wait are joined. None at the end."""
        part = await self._parts.get()
        if not isinstance(part, bytes):
            return part
        pieces = [part]
        while not self._parts.empty():
            following = self._parts.get_nowait()
            if not isinstance(following, bytes):
                self._parts.put_nowait(following)  # the end, which nothing follows
                break
            pieces.append(following)
        return b"".join(pieces)
