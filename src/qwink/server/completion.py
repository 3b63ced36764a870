"""Formats results and events as OpenAI's JSON: a chat completion, or its stream chunks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from qwink.inputs.tokenizer import Tokenizer
from qwink.server.failures import Failure
from qwink.types import Event, Result, TokenLogprob

_LEAST_LOGPROB = -9999.0  # JSON has no minus infinity; OpenAI sends this value instead


class CompletionFormatter:
    """Formats one answer for its client; keeps the id and creation time that all chunks share."""

    last = b"data: [DONE]\n\n"

    def __init__(
        self, model: str, tokenizer: Tokenizer, with_logprobs: bool, include_usage: bool
    ) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model
        self._spelling = TokenFormatter(tokenizer)
        self._with_logprobs, self._include_usage = with_logprobs, include_usage
        self._logprobs: list[dict[str, Any]] = []
        self._role_sent = False

    def document(self, result: Result, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
        """The whole answer as a `chat.completion` object."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": result.text, "refusal": None},
            "logprobs": self._content(logprobs),
            **_finish(result),
        }
        return self._head("chat.completion") | {
            "choices": [choice],
            "usage": _usage(result),
            **remarks_of(result),
        }

    def opening(self) -> Iterator[dict[str, Any]]:
        """Nothing: the first chunk has the role."""
        return iter(())

    def failed(self, failure: Failure) -> dict[str, Any]:
        """OpenAI's clients raise it."""
        return failure.document()

    def chunks(self, event: Event) -> Iterator[dict[str, Any]]:
        """The chunks to stream for an event. A stage event becomes the field `qwink`."""
        if event.result is not None:
            yield from self._last(event.result)
        elif event.stage is not None:
            progress: dict[str, Any] = {"stage": event.stage}
            if event.stage == "queue":
                progress["place"] = event.place
            yield self._chunk({}) | {"qwink": progress}
        elif event.text or event.logprobs:
            yield self._chunk({"content": event.text}, event.logprobs)

    def _last(self, result: Result) -> Iterator[dict[str, Any]]:
        chunk = self._chunk({})
        chunk["choices"][0] |= _finish(result)
        if not self._include_usage:
            yield chunk | remarks_of(result)
            return
        yield chunk
        head = self._head("chat.completion.chunk")
        yield head | {"choices": [], "usage": _usage(result), **remarks_of(result)}

    def _chunk(
        self, delta: dict[str, Any], logprobs: Iterable[TokenLogprob] = ()
    ) -> dict[str, Any]:
        if not self._role_sent:
            self._role_sent = True
            delta = {"role": "assistant", "content": ""} | delta
        content = self._content(logprobs)
        if content is not None and not content["content"]:
            content = None
        choice = {"index": 0, "delta": delta, "logprobs": content, "finish_reason": None}
        chunk = self._head("chat.completion.chunk") | {"choices": [choice]}
        return chunk | {"usage": None} if self._include_usage else chunk

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _content(self, logprobs: Iterable[TokenLogprob]) -> dict[str, Any] | None:
        """OpenAI's `logprobs` object."""
        if not self._with_logprobs:
            return None
        return {"content": self._spelling.all(logprobs), "refusal": None}


class TokenFormatter:
    """Formats tokens with their log-probabilities as both endpoints have them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def all(self, logprobs: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
        """The tokens but the end token, which is not part of the text."""
        ends = self._tokenizer.eos_ids
        return [
            self._token(token.id, token.logprob)
            | {"top_logprobs": [self._token(*likely) for likely in token.top]}
            for token in logprobs
            if token.id not in ends
        ]

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        spelling = self._tokenizer.token_bytes(token)
        return {
            "token": spelling.decode(errors="replace"),
            "logprob": max(logprob, _LEAST_LOGPROB),
            "bytes": list(spelling),
        }


def timings_of(result: Result) -> dict[str, Any]:
    """The result's timings as a dictionary for JSON, rounded to microseconds."""
    return {
        key: round(value, 3) if isinstance(value, float) else value
        for key, value in asdict(result.timings).items()
    }


def _finish(result: Result) -> dict[str, Any]:
    """The finish reason. OpenAI has no "repetition", so clients get "length": it was cut off."""
    reason = "length" if result.finish_reason == "repetition" else result.finish_reason
    return {"finish_reason": reason, "qwink_finish_reason": result.finish_reason}


def _usage(result: Result) -> dict[str, Any]:
    usage = result.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "image_tokens": usage.image_tokens,
        },
    }


def remarks_of(result: Result) -> dict[str, Any]:
    """What answers have beside OpenAI's fields: timings, what is located, and any warnings."""
    remarks: dict[str, Any] = {"timings": timings_of(result)}
    if result.task == "locate" or result.boxes or result.points:
        remarks["boxes"] = [asdict(box) for box in result.boxes]
        remarks["points"] = [asdict(point) for point in result.points]
    if result.warnings:
        remarks["warnings"] = list(result.warnings)
    return remarks
