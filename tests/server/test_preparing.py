"""Preparing pictures in a server: what stops when a client has gone, and whose turn it is."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from qwink.inputs import images
from qwink.runtime import preparation
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.server.app import create_app
from qwink.server.options import ServerOptions
from qwink.server.pictures import Pictures
from qwink.settings import Settings
from tests.server.process import SMALL, data_url, image, png, user
from tests.server.test_bodies import Exchange

HELD = {"type": "image_url", "image_url": {"url": "https://slow.example/picture.png"}}


@pytest.fixture(scope="module")
def vlm(endless_checkpoint: Path, tiny_home: Path) -> Iterator[VLM]:
    settings = Settings(home=tiny_home, hub_cache=tiny_home / "hub", threads=1)
    with load(str(endless_checkpoint), settings=settings) as vlm:
        yield vlm


class Gate:
    """Holds each call up to here until it is opened; counts the calls."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self.reached.set()
        self._open.wait(60)

    def open(self) -> None:
        self._open.set()


async def reached(gate: Gate) -> None:
    async with asyncio.timeout(60):
        while not gate.reached.is_set():
            await asyncio.sleep(0.005)


def body(*parts: Any) -> bytes:
    fields = {"model": "tiny", "max_tokens": 1, "messages": [user(*parts, "What?")]} | SMALL
    return json.dumps(fields).encode()


async def running(vlm: VLM, **options: Any) -> Any:
    app = create_app(lambda: vlm, ServerOptions(**options))
    service = app.state.service
    service.start()
    await service.until_loaded(60)
    return app


async def finish(app: Any) -> None:
    """Until the pool has done all that was begun."""
    service = app.state.service
    await asyncio.gather(*(service.work(lambda: None) for _ in range(2)))
    service._watch.cancel()


def test_no_picture_is_decoded_for_a_client_that_has_gone(
    vlm: VLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, gate = images.decode, Gate()

    def held(*arguments: Any, **options: Any) -> Any:
        gate()
        return decode(*arguments, **options)

    async def scenario() -> None:
        app = await running(vlm)
        exchange = Exchange(app, body(*(image(seed) for seed in range(6))))
        await reached(gate)
        await exchange.hang_up()
        gate.open()
        await finish(app)

    monkeypatch.setattr(preparation, "decode", held)
    asyncio.run(scenario())
    assert gate.count == 1


def test_a_picture_under_way_is_given_up(vlm: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is read in 64 pieces; the client goes at the first of them."""
    read, gate, reads = images.CheckedFile.read, Gate(), []

    def held(self: Any, size: int | None = -1) -> bytes:
        found = read(self, size)
        reads.append(size)
        if gate.count == 0:
            gate()
        return found

    async def scenario() -> None:
        app = await running(vlm)
        picture = {"type": "image_url", "image_url": {"url": data_url(png(1, 400))}}
        exchange = Exchange(app, body(picture))
        await reached(gate)
        await exchange.hang_up()
        gate.open()
        await finish(app)

    monkeypatch.setattr(images.CheckedFile, "read", held)
    asyncio.run(scenario())
    assert len(reads) == 1


def test_requests_take_turns(vlm: VLM) -> None:
    """A request with one picture is not behind one with many, for all threads."""
    order: list[str] = []

    def steps(name: str, count: int) -> Generator[None, None, str]:
        for _ in range(count):
            order.append(name)
            yield
        return name

    async def scenario() -> None:
        app = await running(vlm)
        service = app.state.service
        long = [asyncio.create_task(service.work_by_turns(steps("long", 50))) for _ in range(4)]
        short = asyncio.create_task(service.work_by_turns(steps("short", 1)))
        assert await short == "short"
        assert await asyncio.gather(*long) == ["long"] * 4
        await finish(app)

    asyncio.run(scenario())
    assert order.count("long") == 200
    assert order.index("short") < 40


def test_slow_fetches_hold_up_nobody_else(vlm: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()

    def held(self: Any, url: str, place: str) -> bytes:
        gate()
        return png(1)

    async def scenario() -> None:
        app = await running(vlm, allow_url_host=("slow.example",))
        slow = [Exchange(app, body(HELD)) for _ in range(4)]
        await reached(gate)
        async with asyncio.timeout(60):
            await Exchange(app, body(image(2)))._task
        gate.open()
        async with asyncio.timeout(60):
            await asyncio.gather(*(exchange._task for exchange in slow))
        await finish(app)

    monkeypatch.setattr(Pictures, "_fetch", held)
    asyncio.run(scenario())
    assert gate.count == 4


def test_equal_urls_are_fetched_once(vlm: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def note(self: Any, url: str, place: str) -> bytes:
        fetched.append(url)
        return png(1)

    async def scenario() -> None:
        app = await running(vlm, allow_url_host=("slow.example",))
        async with asyncio.timeout(60):
            await Exchange(app, body(HELD, HELD))._task
        await finish(app)

    monkeypatch.setattr(Pictures, "_fetch", note)
    asyncio.run(scenario())
    assert len(fetched) == 1


def test_pictures_on_their_way_are_given_up_after_the_grace(
    vlm: VLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    sent: list[Any] = []

    def held(self: Any, url: str, place: str) -> bytes:
        gate()
        return png(1)

    async def note(self: Any, message: Any) -> None:
        sent.append(message)

    async def scenario() -> None:
        app = await running(vlm, allow_url_host=("slow.example",), grace=0.05)
        exchange = Exchange(app, body(HELD))
        await reached(gate)
        async with asyncio.timeout(60):
            await app.state.service.drain(asyncio.Event())
            await exchange._task
        gate.open()
        await finish(app)

    monkeypatch.setattr(Pictures, "_fetch", held)
    monkeypatch.setattr(Exchange, "_send", note)
    asyncio.run(scenario())
    assert sent[0]["status"] == 503
    assert (b"retry-after", b"5") in sent[0]["headers"]
