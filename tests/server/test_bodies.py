"""Memory of request bodies while answers are generated."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.server.app import create_app
from qwink.server.limits import Bodies, Body
from qwink.server.options import ServerOptions
from qwink.settings import Settings
from tests.server.process import SMALL, data_url, png, user

# A picture file with extra bytes after its end.
PICTURE = {"type": "image_url", "image_url": {"url": data_url(png(2) + bytes(3_000_000))}}
ENDLESS = {"model": "tiny", "max_tokens": 3500, "temperature": 1.5} | SMALL


@pytest.fixture(scope="module")
def vlm(endless_checkpoint: Path, tiny_home: Path) -> Iterator[VLM]:
    settings = Settings(home=tiny_home, hub_cache=tiny_home / "hub", threads=1)
    with load(str(endless_checkpoint), settings=settings) as vlm:
        yield vlm


class Exchange:
    """A request to an app in this process. Its client never reads, and disconnects at the end."""

    def __init__(self, app: Any, body: bytes) -> None:
        self._messages = [{"type": "http.request", "body": body, "more_body": False}]
        self._gone = asyncio.Event()
        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {
            "type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": headers,
            "query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": "",
        }  # fmt: skip
        self._task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if self._messages:
            return self._messages.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        pass

    async def hang_up(self) -> None:
        self._gone.set()
        await self._task


async def held_during_an_answer(vlm: VLM, body: bytes, counts: list[Bodies]) -> tuple[int, int]:
    """Memory that the process uses for a request during its answer, and the bytes counted."""
    app = create_app(lambda: vlm, ServerOptions())
    service = app.state.service
    service.start()
    await service.until_loaded(60)
    tracemalloc.start(1)
    exchange = Exchange(app, body)
    deadline = asyncio.get_running_loop().time() + 60
    while not service._streams:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # worker threads have released their references
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = sum(bodies.num_bytes for bodies in counts)
    await exchange.hang_up()
    assert sum(bodies.num_bytes for bodies in counts) == 0
    service._watch.cancel()
    return taken, counted


@pytest.mark.parametrize("stream", [True, False])
def test_the_body_is_freed_when_the_question_is_prepared(
    vlm: VLM, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    counts: list[Bodies] = []
    new: Callable[..., None] = Bodies.__init__

    def remember(self: Bodies, max_bytes: int) -> None:
        new(self, max_bytes)
        counts.append(self)

    monkeypatch.setattr(Bodies, "__init__", remember)
    fields = ENDLESS | {"messages": [user(PICTURE, "Hi")], "stream": stream}
    body = json.dumps(fields).encode()
    taken, counted = asyncio.run(held_during_an_answer(vlm, body, counts))
    assert counts
    assert counted == 0
    assert taken < len(body) / 4


def test_a_body_is_counted_until_it_is_released() -> None:
    bodies = Bodies(10)
    one, other = Body(bodies), Body(bodies)
    one.add(b"12345")
    other.add(b"1234")
    assert bodies.num_bytes == 9
    with pytest.raises(Exception, match="too many large bodies") as caught:
        one.add(b"67")
    assert caught.value.status == 429  # type: ignore[attr-defined]
    assert [bytes(one.take()) for _ in range(2)] == [b"12345", b""]
    assert bodies.num_bytes == 9
    for _ in range(2):
        one.release()
        assert bodies.num_bytes == 4
    other.add(b"567890")
    assert bodies.num_bytes == 10
