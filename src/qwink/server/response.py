"""Formats results and events as OpenAI's JSON of /v1/responses, with its events in its order."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from qwink.inputs.tokenizer import Tokenizer
from qwink.server.choice import TokenFormatter
from qwink.server.completion import remarks_of
from qwink.server.failures import Failure
from qwink.server.output import OutputItems
from qwink.server.response_schema import ResponseRequest
from qwink.server.sse import Answer
from qwink.types import Event, Result, SamplingParams


class ResponseFormatter:
    """Formats one answer for its client; keeps the id, the count of events and the items so far."""

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
        spelling = TokenFormatter(tokenizer) if request.include else None
        self._items = OutputItems(spelling, calls=calls)
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
            "tools": [tool.document() for tool in request.tools or ()],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": sampling.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": request.user,
        }

    def document(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The whole answer as a `response` object."""
        (answer,) = answers
        for _ in self._items.feed(answer.result.text, answer.logprobs):
            pass
        for _ in self._items.finish(_status(answer.result)):
            pass
        return self._response(answer.result)

    def opening(self) -> Iterator[dict[str, Any]]:
        """The two events that come before anything is known of the answer."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._head)

    def chunks(self, event: Event, number: int = 0) -> Iterator[dict[str, Any]]:
        """The events to stream for an event. OpenAI has none for the stages of a prompt."""
        for one in self._items.feed(event.text, event.logprobs):
            yield self._numbered(one)
        result = event.result
        if result is not None:
            for one in self._items.finish(_status(result)):
                yield self._numbered(one)
            response = self._response(result)
            yield self._event(f"response.{response['status']}", response=response)

    def failed(self, failure: Failure) -> dict[str, Any]:
        """The event that ends a stream whose answer broke off."""
        error = {"code": "server_error", "message": failure.message}
        return self._event(
            "response.failed", response=self._head | {"status": "failed", "error": error}
        )

    def _response(self, result: Result) -> dict[str, Any]:
        status = _status(result)
        complete = status == "completed"
        usage = result.usage
        return self._head | {
            "status": status,
            "completed_at": int(time.time()) if complete else None,
            "incomplete_details": None if complete else {"reason": "max_output_tokens"},
            "output": self._items.documents,
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

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        return self._numbered({"type": kind, **fields})

    def _numbered(self, event: dict[str, Any]) -> dict[str, Any]:
        self._num_events += 1
        return event | {"sequence_number": self._num_events - 1}


def _status(result: Result) -> str:
    return "completed" if result.finish_reason == "stop" else "incomplete"
