"""Many concurrent mixed requests: each gets the same answer as when it is sent alone."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest

from tests.server.process import SMALL, Server, ask, data_url, image, user

NUM_REQUESTS = 200
CONCURRENCY = 16

GOOD: list[list[Any]] = [
    [user("Hello")],
    [user(image(1), "What is it?")],
    [user(image(2), "What is it?")],
    [user(image(1), image(2), "Which is larger?")],
    [{"role": "system", "content": "Be brief."}, user(image(3), "What is it?")],
    [user(image(1), "What is it?"), {"role": "assistant", "content": "A cat."}, user("Why?")],
]
PROBLEMS: list[tuple[int, dict[str, Any]]] = [
    (400, {"messages": [user({"type": "image_url", "image_url": {"url": data_url(b"junk")}})]}),
    (400, {"messages": [user("Hi")], "n": 9}),
    (404, {"messages": [user("Hi")], "model": "other"}),
    (413, {"messages": [user("x" * 1_200_000)]}),
    (400, {"messages": [user("long " * 6000)]}),
]


class Outcomes:
    """Sends the requests and collects the outcomes that are not as expected."""

    def __init__(self, server: Server, expected: list[str]) -> None:
        self._server, self._expected = server, expected
        self.wrong: list[Any] = []
        self.num_right = 0

    async def one(self, number: int, http: httpx.AsyncClient) -> None:
        kind = number % 10
        if kind < 6:
            await self._good(kind, http)
        elif kind < 8:
            await self._bad(number // 10 % len(PROBLEMS), http)
        elif kind == 8:
            await self._cancelled(http)
        else:
            await self._slow()

    async def _good(self, index: int, http: httpx.AsyncClient) -> None:
        body = {"model": "tiny", "messages": GOOD[index], "max_tokens": 6, "temperature": 0}
        response = await http.post(self._url, json=body | SMALL)
        text = response.json()["choices"][0]["message"]["content"] if response.is_success else None
        self._note(text == self._expected[index], (index, response.status_code, text))

    async def _bad(self, index: int, http: httpx.AsyncClient) -> None:
        status, fields = PROBLEMS[index]
        response = await http.post(self._url, json={"model": "tiny", "max_tokens": 2} | fields)
        self._note(response.status_code == status, (status, response.status_code, response.text))

    async def _cancelled(self, http: httpx.AsyncClient) -> None:
        body = {"model": "tiny", "messages": GOOD[1], "max_tokens": 500, "stream": True}
        async with http.stream("POST", self._url, json=body | SMALL) as response:
            async for _ in response.aiter_lines():
                break
        self._note(response.status_code == 200, ("cancelled", response.status_code))

    async def _slow(self) -> None:
        host, port = self._server.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/images HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
        line = await reader.readline()
        writer.close()
        self._note(b" 408 " in line, ("slow", line))

    @property
    def _url(self) -> str:
        return f"{self._server.address}/v1/chat/completions"

    def _note(self, right: bool, what: Any) -> None:
        self.num_right += right
        if not right:
            self.wrong.append(what)


async def run_all(outcomes: Outcomes) -> None:
    numbers = iter(range(NUM_REQUESTS))

    async def worker(http: httpx.AsyncClient) -> None:
        for number in numbers:
            await outcomes.one(number, http)

    async with httpx.AsyncClient(timeout=120, trust_env=False) as http:
        await asyncio.gather(*(worker(http) for _ in range(CONCURRENCY)))


@pytest.mark.slow
def test_mixed_load(server: Server, client: openai.OpenAI) -> None:
    alone = [ask(client, *messages).choices[0].message.content for messages in GOOD]
    outcomes = Outcomes(server, alone)
    asyncio.run(run_all(outcomes))
    assert outcomes.wrong == []
    assert outcomes.num_right == NUM_REQUESTS
    server.wait_until(lambda: server.metric("qwink_active ") == 0)
    assert server.metric("qwink_running ") == 0
    chats = [line for line in server.requests() if line["route"] == "/v1/chat/completions"]
    assert not [line for line in chats if line["status"] >= 500]
    assert server.http.get(f"{server.address}/health").status_code == 200
