"""Formats results and events as OpenAI's JSON of /v1/responses, with its events in its order."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from qwink.inputs.tokenizer import Tokenizer
from qwink.server.choice import TokenFormatter
from qwink.server.completion import remarks_of
from qwink.server.failures import Failure
from qwink.server.response_schema import ResponseRequest
from qwink.server.sse import Answer
from qwink.types import Event, Result, SamplingParams, TokenLogprob


class ResponseFormatter:
    """Formats one answer for its client; keeps ids, the count of events and the text so far."""

    last = b""  # OpenAI's stream ends with response.completed

    def __init__(
        self, request: ResponseRequest, sampling: SamplingParams, tokenizer: Tokenizer
    ) -> None:
        self._item_id = f"msg_{uuid.uuid4().hex}"
        self._tokens = TokenFormatter(tokenizer) if request.include else None
        self._logprobs: list[dict[str, Any]] = []
        self._text: list[str] = []
        self._num_events = 0
        self._begun = False
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
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "prompt_cache_key": request.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None},
            "safety_identifier": request.safety_identifier,
            "service_tier": "flex" if request.service_tier == "flex" else "default",
            "store": False,
            "temperature": sampling.temperature,
            "text": {"format": (request.text and request.text.format) or {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": request.top_logprobs or 0,
            "top_p": sampling.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": request.user,
        }

    def document(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The whole answer as a `response` object."""
        (answer,) = answers
        return self._response(answer.result, self._spelt(answer.logprobs))

    def opening(self) -> Iterator[dict[str, Any]]:
        """The two events that come before anything is known of the answer."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._head)

    def chunks(self, event: Event, number: int = 0) -> Iterator[dict[str, Any]]:
        """The events to stream for an event. OpenAI has none for the stages of a prompt."""
        if event.text or event.logprobs:
            yield from self._begin()
            logprobs = self._spelt(event.logprobs)
            self._text.append(event.text)
            self._logprobs += logprobs
            yield self._piece("delta", delta=event.text, logprobs=logprobs)
        if event.result is not None:
            yield from self._begin()
            yield from self._end(event.result)

    def failed(self, failure: Failure) -> dict[str, Any]:
        """The event that ends a stream whose answer broke off."""
        error = {"code": "server_error", "message": failure.message}
        return self._event(
            "response.failed", response=self._head | {"status": "failed", "error": error}
        )

    def _begin(self) -> Iterator[dict[str, Any]]:
        if self._begun:
            return
        self._begun = True
        item = self._item("in_progress", [])
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._part("added", _text_part("", []))

    def _end(self, result: Result) -> Iterator[dict[str, Any]]:
        text = "".join(self._text)
        yield self._piece("done", text=text, logprobs=self._logprobs)
        yield self._part("done", _text_part(text, self._logprobs))
        response = self._response(result, self._logprobs)
        item = response["output"][0]
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{response['status']}", response=response)

    def _response(self, result: Result, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        complete = result.finish_reason == "stop"
        status = "completed" if complete else "incomplete"
        usage = result.usage
        return self._head | {
            "status": status,
            "completed_at": int(time.time()) if complete else None,
            "incomplete_details": None if complete else {"reason": "max_output_tokens"},
            "output": [self._item(status, [_text_part(result.text, logprobs)])],
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

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _piece(self, kind: str, **fields: Any) -> dict[str, Any]:
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        return self._event(f"response.output_text.{kind}", **place, **fields)

    def _part(self, kind: str, part: dict[str, Any]) -> dict[str, Any]:
        place = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        return self._event(f"response.content_part.{kind}", **place, part=part)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._num_events += 1
        return {"type": kind, "sequence_number": self._num_events - 1, **fields}

    def _spelt(self, logprobs: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
        return self._tokens.all(logprobs) if self._tokens else []


def _text_part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
