"""The socket that the server listens on."""

from __future__ import annotations

import asyncio
import socket

from qwink.server.run import _listen


def test_small_pieces_are_sent_at_once() -> None:
    """Without TCP_NODELAY, a client waits 40 ms for the second piece of a response."""

    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            found.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = _listen("127.0.0.1", 0)
        server = await asyncio.start_server(answer, sock=listener)
        async with server:
            _, writer = await asyncio.open_connection(*listener.getsockname())
            value = await found
            writer.close()
            return value

    assert asyncio.run(accepted()) != 0
