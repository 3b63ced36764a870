"""Tests of server modules for states that are hard to reach with a real process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from qwink.errors import (
    ArtifactError,
    Cancelled,
    ContextOverflow,
    DeadlineExceeded,
    EngineStopped,
    FetchError,
    GenerationError,
    ImageTooLarge,
    OptionError,
    OutOfMemory,
    Overloaded,
)
from qwink.server.auth import Keys
from qwink.server.failures import as_failure
from qwink.server.logs import Record
from qwink.server.service import AnswerEvents
from qwink.server.sse import EventStream
from qwink.types import Event


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Overloaded("x"), 429, "overloaded"),
        (DeadlineExceeded("x"), 504, "deadline_exceeded"),
        (EngineStopped("x"), 503, "engine_stopped"),
        (Cancelled("x"), 499, "cancelled"),
        (ContextOverflow(9, 8), 400, "context_length_exceeded"),
        (ImageTooLarge("x"), 400, "image_too_large"),
        (FetchError("x"), 400, "image_not_fetched"),
        (OptionError("seed is -1; ..."), 400, "invalid_value"),
        (GenerationError("x"), 500, "generation_failed"),
        (OutOfMemory("x"), 500, "out_of_memory"),
        (ArtifactError("/secret/path"), 500, "server_error"),
        (RuntimeError("/secret/path"), 500, "internal_error"),
    ],
)
def test_errors_become_statuses(error: Exception, status: int, code: str) -> None:
    failure = as_failure(error, retry_after=7)
    assert (failure.status, failure.code) == (status, code)
    assert "secret" not in failure.message
    assert (failure.headers.get("Retry-After") == "7") == (status == 429)
    assert failure.param == ("seed" if isinstance(error, OptionError) else None)


def test_keys_are_compared_whole() -> None:
    keys = Keys(("one", "zwölf"))
    assert keys.accept(b"one")
    assert keys.accept("zwölf".encode())
    for wrong in (b"", b"on", b"onee", b"One", b"\xff"):
        assert not keys.accept(wrong)
    assert not Keys(())


async def _stream_to_a_client_that_does_not_read() -> tuple[Record, list[str]]:
    events = AnswerEvents(asyncio.get_running_loop(), None, lambda _: None)
    events.put(Event("text"))
    record, ended = Record("id"), []
    events.on_close = lambda: ended.append("events")

    class Chunks:
        def opening(self) -> list[dict[str, Any]]:
            return []

        def chunks(self, event: Event, _: int) -> list[dict[str, Any]]:
            return [{"text": event.text}]

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    async def receive() -> Any:
        await asyncio.sleep(60)

    stream = EventStream(events, Chunks(), record, 0.05, lambda: ended.append("all"))  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"^$"):
        await stream({"type": "http"}, receive, send)
    return record, ended


def test_a_client_that_does_not_read_is_cut_off() -> None:
    record, ended = asyncio.run(_stream_to_a_client_that_does_not_read())
    assert record.details["broke_off"] == "client_too_slow"
    assert ended == ["events", "all"]


async def _late() -> None:
    events = AnswerEvents(asyncio.get_running_loop(), 0.0, lambda _: None)
    await events.next()


def test_deadlines_hold_while_the_engine_is_busy() -> None:
    with pytest.raises(DeadlineExceeded):
        asyncio.run(_late())
