"""A TCP proxy that is as slow as one wants."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from types import TracebackType

_PIECE = 64 << 10
_LEAST_S = 0.005  # between pieces


class SlowProxy:
    """Passes connections on to a port of this machine. A context manager, which ends it.

    `bytes_per_s` limits what the server sends, `delay_s` delays each piece of it. Both may be
    changed at any time. With `bytes_per_s` 0, nothing is passed on.
    """

    def __init__(self, port: int, bytes_per_s: float = float("inf"), delay_s: float = 0.0) -> None:
        self.bytes_per_s, self.delay_s = bytes_per_s, delay_s
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="slow-proxy", daemon=True)
        self._thread.start()
        self._started.wait()

    @property
    def url(self) -> str:
        """Of a Redis behind it."""
        return f"redis://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Close all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def __enter__(self) -> SlowProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, questions = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        tasks = [
            asyncio.create_task(self._copy(reader, questions)),
            asyncio.create_task(self._copy_slowly(answers, writer)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # asyncio logs handlers that end so
        finally:
            for task in tasks:
                task.cancel()
            for one in (writer, questions):
                one.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE):
                while not self.bytes_per_s:
                    await asyncio.sleep(_LEAST_S)
                writer.write(data)
                await writer.drain()

    async def _copy_slowly(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        due = 0.0  # when the piece is through, at this rate
        with suppress(OSError):
            while True:
                while not self.bytes_per_s:
                    await asyncio.sleep(_LEAST_S)
                rate = self.bytes_per_s
                most = _PIECE if rate == float("inf") else max(1, int(rate * _LEAST_S))
                data = await reader.read(min(_PIECE, most))
                if not data:
                    return
                now = self._loop.time()
                due = max(due, now - _LEAST_S) + len(data) / rate
                if self.delay_s or due > now:
                    await asyncio.sleep(self.delay_s + max(0.0, due - now))
                writer.write(data)
                await writer.drain()


@contextmanager
def proxy_process(port: int, bytes_per_s: float, delay_s: float) -> Iterator[str]:
    """The URL of such a proxy in a process of its own, which takes no time from this one."""
    spawn = get_context("spawn")
    ports = spawn.SimpleQueue()
    process = spawn.Process(target=_serve_alone, args=(port, bytes_per_s, delay_s, ports))
    process.start()
    try:
        yield f"redis://127.0.0.1:{ports.get()}"
    finally:
        process.kill()
        process.join()


def _serve_alone(port: int, bytes_per_s: float, delay_s: float, ports: SimpleQueue[int]) -> None:
    with SlowProxy(port, bytes_per_s, delay_s) as proxy:
        ports.put(proxy.port)
        threading.Event().wait()
