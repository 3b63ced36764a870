"""Formats results and events as OpenAI's JSON of /v1/responses, with its events in its order."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from qwink.inputs.tokenizer import Tokenizer
from qwink.server.calls import Begun, CallReader, Piece, Text
from qwink.server.choice import TokenFormatter
from qwink.server.completion import remarks_of
from qwink.server.failures import Failure
from qwink.server.output_items import CallItem, ItemEvent, MessageItem
from qwink.server.response_schema import ResponseRequest
from qwink.server.sse import Answer
from qwink.server.tool_schema import FlatTool
from qwink.types import Event, Result, SamplingParams, TokenLogprob


class ResponseFormatter:
    """Formats one answer for its client; keeps the items so far and the count of events."""

    last = b""  # OpenAI's stream ends with response.completed

    def __init__(
        self,
        request: ResponseRequest,
        sampling: SamplingParams,
        tokenizer: Tokenizer,
        *,
        calls: bool = False,
    ) -> None:
        """`calls`: whether the answer may call tools."""
        self._tokens = TokenFormatter(tokenizer) if request.include else None
        self._reader = CallReader() if calls else None
        self._items: list[MessageItem | CallItem] = []
        self._num_events = 0
        self._head: dict[str, Any] = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": None,
            "metadata": request.metadata or {},
            "model": request.model,
            "output": [],
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "prompt_cache_key": request.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": request.safety_identifier,
            "service_tier": "flex" if request.service_tier == "flex" else "default",
            "store": False,
            "temperature": sampling.temperature,
            "text": {"format": (request.text and request.text.format) or {"type": "text"}},
            "tool_choice": request.tool_choice or "auto",
            "tools": [_tool(tool) for tool in request.tools or ()],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": sampling.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": request.user,
        }

    def document(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The whole answer as a `response` object."""
        (answer,) = answers
        event = Event(answer.result.text, logprobs=answer.logprobs, result=answer.result)
        *_, last = self.chunks(event)
        response: dict[str, Any] = last["response"]
        return response

    def opening(self) -> Iterator[dict[str, Any]]:
        """The two events that come before anything is known of the answer."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, {"response": self._head})

    def chunks(self, event: Event, number: int = 0) -> Iterator[dict[str, Any]]:
        """The events to stream for an event. OpenAI has none for the stages of a prompt."""
        for kind, fields in self._events(event):
            yield self._event(kind, fields)

    def _events(self, event: Event) -> Iterator[ItemEvent]:
        if self._reader is not None:
            yield from self._take(self._reader.feed(event.text))
        elif event.text or event.logprobs:
            yield from self._take([Text(event.text)], event.logprobs)
        if event.result is not None:
            if self._reader is not None:
                yield from self._take(self._reader.finish())
            yield from self._end(event.result)

    def _take(
        self, pieces: Iterable[Piece], logprobs: Iterable[TokenLogprob] = ()
    ) -> Iterator[ItemEvent]:
        for piece in pieces:
            if isinstance(piece, Begun):
                yield from self._begin(CallItem(len(self._items), piece.name))
                continue
            item = self._items[-1] if self._items else None
            if isinstance(piece, Text):
                if not isinstance(item, MessageItem):
                    item = MessageItem(len(self._items))
                    yield from self._begin(item)
                spelt = self._tokens.all(logprobs) if self._tokens else []
                yield from item.add(piece.text, spelt)
            elif isinstance(item, CallItem):
                yield from item.add(piece.text)

    def _begin(self, item: MessageItem | CallItem) -> Iterator[ItemEvent]:
        if self._items:
            yield from self._items[-1].end("completed")
        self._items.append(item)
        yield from item.begin()

    def _end(self, result: Result) -> Iterator[ItemEvent]:
        if not self._items:  # nothing was said
            yield from self._begin(MessageItem(0))
        response = self._response(result)
        yield from self._items[-1].end(response["status"])
        yield f"response.{response['status']}", {"response": response}

    def failed(self, failure: Failure) -> dict[str, Any]:
        """The event that ends a stream whose answer broke off."""
        error = {"code": "server_error", "message": failure.message}
        response = self._head | {"status": "failed", "error": error}
        return self._event("response.failed", {"response": response})

    def _response(self, result: Result) -> dict[str, Any]:
        complete = result.finish_reason == "stop"
        status = "completed" if complete else "incomplete"
        usage = result.usage
        return self._head | {
            "status": status,
            "completed_at": int(time.time()) if complete else None,
            "incomplete_details": None if complete else {"reason": "max_output_tokens"},
            "output": [
                *(item.document("completed") for item in self._items[:-1]),
                self._items[-1].document(status),
            ],
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {
                    "cached_tokens": usage.cached_tokens,
                    "cache_write_tokens": 0,
                    "image_tokens": usage.image_tokens,
                },
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            },
            "qwink_finish_reason": result.finish_reason,
            **remarks_of(result),
        }

    def _event(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        self._num_events += 1
        return {"type": kind, "sequence_number": self._num_events - 1, **fields}


def _tool(tool: FlatTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }
