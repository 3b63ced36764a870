"""HTTP as a soak's clients speak it: slowly, in pieces, or not to the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass, field
from typing import Any

import h11

_HURRIED = 1 << 16
_PIECES = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """How a client behaves. `send_pause_s` lies between eight pieces of the body.

    `read_bytes` are read at a time, with `read_pause_s` between; a small receive buffer makes the
    server wait for such a client. `stall`: the second half of the body never comes.
    """

    send_pause_s: float = 0.0
    read_bytes: int = _HURRIED
    read_pause_s: float = 0.0
    stall: bool = False


_PLAIN = Pace()


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response."""

    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def code(self) -> str | None:
        """The code of OpenAI's error object, if this is one."""
        try:
            code: str | None = json.loads(self.body)["error"]["code"]
        except (ValueError, LookupError, TypeError):
            return None
        return code

    def events(self) -> list[dict[str, Any]]:
        """The documents of a stream. Raises ValueError for one that is not JSON."""
        lines = self.body.decode().split("\n")
        data = [line[5:].strip() for line in lines if line.startswith("data:")]
        return [json.loads(line) for line in data if line != "[DONE]"]


class Exchange:
    """One request on a connection of its own. Every way of breaking off raises OSError."""

    def __init__(self, port: int, pace: Pace) -> None:
        self._port, self._pace = port, pace
        self._parser = h11.Connection(h11.CLIENT)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Exchange:
        connection = socket.socket()
        connection.setblocking(False)
        slow = self._pace.read_bytes < _HURRIED
        if slow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        except BaseException:
            connection.close()
            raise
        self._reader, self._writer = await asyncio.open_connection(
            sock=connection, limit=self._pace.read_bytes
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def send(self, path: str, body: bytes, media_type: str = "application/json") -> None:
        """A POST request; a GET request without a body."""
        headers = [("Host", "localhost"), ("Connection", "close")]
        if body:
            headers += [("Content-Type", media_type), ("Content-Length", str(len(body)))]
        head = h11.Request(method="POST" if body else "GET", target=path, headers=headers)
        self._writer.write(self._parser.send(head) or b"")
        size = -(-len(body) // _PIECES) or 1
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        if self._pace.stall:
            self._writer.write(b"".join(pieces[: _PIECES // 2]))
            await self._drain()
            return
        for piece in pieces:
            if self._writer.is_closing():  # refused early
                break
            self._writer.write(self._parser.send(h11.Data(data=piece)) or b"")
            await self._drain()
            if self._pace.send_pause_s:
                await asyncio.sleep(self._pace.send_pause_s)
        else:
            self._parser.send(h11.EndOfMessage())

    async def _drain(self) -> None:
        with contextlib.suppress(ConnectionError):  # refused early: the response says why
            await self._writer.drain()

    async def receive(self) -> Reply:
        """The response, to its end. Raises OSError if it is cut off or malformed."""
        status, headers, body = 0, {}, bytearray()
        try:
            while True:
                event = self._parser.next_event()
                if event is h11.NEED_DATA:
                    self._parser.receive_data(await self.some())
                elif isinstance(event, h11.Response):
                    status = event.status_code
                    headers = {k.decode(): v.decode() for k, v in event.headers}
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    return Reply(status, headers, bytes(body))
        except h11.ProtocolError as error:
            raise ConnectionError(str(error)) from None

    async def some(self) -> bytes:
        """The next bytes, empty at the end."""
        if self._pace.read_pause_s:
            await asyncio.sleep(self._pace.read_pause_s)
        return await self._reader.read(self._pace.read_bytes)


async def exchange(
    port: int, path: str, body: bytes, pace: Pace = _PLAIN, media_type: str = "application/json"
) -> Reply:
    """Send a request and receive the response. Raises OSError."""
    async with Exchange(port, pace) as one:
        await one.send(path, body, media_type)
        return await one.receive()
