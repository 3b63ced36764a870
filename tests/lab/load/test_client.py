"""Reading one stream, with and without faults; test_measure uses a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from qwink.errors import QwinkError
from qwink.lab.load.client import Reply, ask, find_model

ROLE: dict[str, Any] = {"choices": [{"delta": {"role": "assistant"}}]}
STOP: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
DONE = b"data: [DONE]\n\n"


def piece(text: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}}]}


def usage(num_tokens: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"completion_tokens": num_tokens}}


def stream(*chunks: dict[str, Any]) -> bytes:
    lines = [json.dumps(chunk, ensure_ascii=False).encode() for chunk in chunks]
    return b"".join(b"data: %s\n\n" % line for line in lines)


class Slices(httpx.AsyncByteStream):
    """A body in slices of `size` bytes, so that lines arrive in parts."""

    def __init__(self, body: bytes, size: int, fault: Exception | None = None) -> None:
        self._body, self._size, self._fault = body, size, fault

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), self._size):
            yield self._body[start : start + self._size]
        if self._fault:
            raise self._fault


def answered_by(handler: Callable[[httpx.Request], httpx.Response]) -> Reply:
    async def run() -> Reply:
        transport = httpx.MockTransport(handler)
        async with httpx.AsyncClient(base_url="http://test/v1/", transport=transport) as http:
            return await ask(http, {"model": "m"})

    return asyncio.run(run())


def reply_to(body: bytes, size: int = 7, fault: Exception | None = None) -> Reply:
    return answered_by(lambda _: httpx.Response(200, stream=Slices(body, size, fault)))


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_pieces_and_tokens_are_counted(size: int) -> None:
    body = stream(ROLE, piece("a"), piece("b\u2028c"), piece("d"), STOP, usage(5)) + DONE
    reply = reply_to(b": keep-alive\n\n" + body, size)
    assert reply.error is None
    assert reply.num_tokens == 5
    assert len(reply.gaps_ms) == 2
    assert reply.first_token_ms is not None
    assert reply.total_ms is not None
    assert 0 < reply.first_token_ms <= reply.total_ms
    assert reply.token_ms == pytest.approx(sum(reply.gaps_ms) / 4)


def test_pieces_stand_for_tokens_where_the_server_does_not_count() -> None:
    assert reply_to(stream(piece("a"), piece("b"), STOP)).num_tokens == 2


def test_one_token_has_no_time_per_token() -> None:
    reply = reply_to(stream(piece("a"), STOP, usage(1)) + DONE)
    assert (reply.token_ms, reply.gaps_ms, reply.error) == (None, (), None)


def test_an_empty_answer_is_an_answer() -> None:
    reply = reply_to(stream(ROLE, STOP, usage(1)) + DONE)
    assert reply.error is None
    assert reply.first_token_ms == reply.total_ms


@pytest.mark.parametrize(
    ("body", "fault", "error"),
    [
        (stream(piece("a")), None, "cut off"),
        (stream(piece("a"), {"error": {"message": "x"}}), None, "error in the stream"),
        (b"data: {oops\n\n", None, "not JSON"),
        (stream(piece("a")), httpx.ReadError("gone"), "ReadError"),
        (stream(piece("a")), httpx.ReadTimeout("slow"), "timeout"),
    ],
)
def test_broken_streams(body: bytes, fault: Exception | None, error: str) -> None:
    reply = reply_to(body, fault=fault)
    assert reply.error == error
    assert reply.total_ms is None


def test_refusals_are_counted_by_status() -> None:
    assert answered_by(lambda _: httpx.Response(429)) == Reply("HTTP 429")


def test_streams_ask_for_usage() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert body == {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
        assert request.url == "http://test/v1/chat/completions"
        return httpx.Response(200, content=stream(piece("a"), STOP))

    assert answered_by(handler).error is None


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (httpx.Response(401), "--api-key-file"),
        (httpx.Response(404), "404"),
        (httpx.Response(200, content=b"<html>"), "--model"),
        (httpx.Response(200, json={"data": []}), "--model"),
    ],
)
def test_servers_without_models(response: httpx.Response, words: str) -> None:
    async def run() -> str:
        transport = httpx.MockTransport(lambda _: response)
        async with httpx.AsyncClient(base_url="http://test/v1/", transport=transport) as http:
            return await find_model(http)

    with pytest.raises(QwinkError, match=words):
        asyncio.run(run())
