"""One streamed request to an OpenAI-compatible server, timed in the client."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx

from qwink.errors import QwinkError


@dataclass(frozen=True, slots=True)
class Reply:
    """Times of a request; None where it failed, and `error` is the kind of failure.

    `gaps_ms` lie between the pieces of the answer, `token_ms` is the mean time of a token after
    the first, None where there is just one.
    """

    error: str | None
    total_ms: float | None = None
    first_token_ms: float | None = None
    token_ms: float | None = None
    gaps_ms: tuple[float, ...] = ()
    num_tokens: int = 0


class Broken(Exception):
    """The stream ended before it was complete. The message is the kind of error."""


async def find_model(http: httpx.AsyncClient) -> str:
    """The first model that the server lists. Raises QwinkError if there is none."""
    try:
        response = await http.get("models")
        response.raise_for_status()
        return str(response.json()["data"][0]["id"])
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        hint = "; give a key with --api-key-file" if status in (401, 403) else ""
        raise QwinkError(f"{error.request.url}: the server answers {status}{hint}") from None
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise QwinkError(f"{http.base_url}: {reason}; is a server running there?") from None
    except (ValueError, LookupError, TypeError):
        raise QwinkError(f"{http.base_url}models lists no model; name one with --model") from None


async def ask(http: httpx.AsyncClient, body: dict[str, Any]) -> Reply:
    """Send a chat completion and follow its stream. A failure becomes the reply's `error`."""
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    start = time.perf_counter()
    stamps: list[float] = []
    num_tokens: int | None = None
    try:
        async with http.stream("POST", "chat/completions", json=body) as response:
            if response.status_code != 200:
                return Reply(f"HTTP {response.status_code}")
            async for chunk in _chunks(response):
                if _has_content(chunk):
                    stamps.append(time.perf_counter())
                num_tokens = (chunk.get("usage") or {}).get("completion_tokens", num_tokens)
    except httpx.TimeoutException:
        return Reply("timeout")
    except httpx.HTTPError as error:
        return Reply(type(error).__name__)
    except Broken as error:
        return Reply(str(error))
    return _timed(start, stamps, num_tokens)


async def _chunks(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The stream's JSON documents. Raises Broken if it is incomplete or has an error."""
    finished = False
    async for data in _events(response):
        if data == "[DONE]":
            return
        try:
            chunk: dict[str, Any] = json.loads(data)
        except ValueError:
            raise Broken("not JSON") from None
        if "error" in chunk:
            raise Broken("error in the stream")
        finished = finished or any(choice.get("finish_reason") for choice in _choices(chunk))
        yield chunk
    if not finished:  # some servers leave out [DONE]
        raise Broken("cut off")


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    """The data of server-sent events, one line each.

    Lines are split at line feeds only: httpx's reader also splits at U+2028, which JSON may
    contain.
    """
    rest = b""
    async for block in response.aiter_bytes():
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip().decode(errors="replace")


def _choices(chunk: dict[str, Any]) -> list[dict[str, Any]]:
    return chunk.get("choices") or []


def _has_content(chunk: dict[str, Any]) -> bool:
    deltas = [choice.get("delta") or {} for choice in _choices(chunk)]
    return any(delta.get("content") or delta.get("reasoning_content") for delta in deltas)


def _timed(start: float, stamps: list[float], num_tokens: int | None) -> Reply:
    """Times of a complete stream; the first token of an empty answer is its end."""
    end = time.perf_counter()
    stamps = stamps or [end]
    tokens = len(stamps) if num_tokens is None else num_tokens
    gaps = tuple((b - a) * 1e3 for a, b in pairwise(stamps))
    return Reply(
        None,
        total_ms=(end - start) * 1e3,
        first_token_ms=(stamps[0] - start) * 1e3,
        token_ms=sum(gaps) / (tokens - 1) if tokens > 1 else None,
        gaps_ms=gaps,
        num_tokens=tokens,
    )
