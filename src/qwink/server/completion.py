"""Formats results and events as OpenAI's JSON: a chat completion, or its stream chunks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from qwink.inputs.tokenizer import Tokenizer
from qwink.server.choice import ChoiceFormatter, TokenFormatter, located_in
from qwink.server.failures import Failure
from qwink.server.sse import Answer
from qwink.types import Event, Result, Usage


class CompletionFormatter:
    """Formats the answers to one request; keeps the id and creation time that all chunks share."""

    last = b"data: [DONE]\n\n"

    def __init__(
        self,
        model: str,
        tokenizer: Tokenizer,
        with_logprobs: bool,
        include_usage: bool,
        count: int = 1,
        *,
        calls: bool = False,
    ) -> None:
        """`count`: how many answers there are. `calls`: whether they may call tools."""
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model, self._include_usage = model, include_usage
        spelling = TokenFormatter(tokenizer) if with_logprobs else None
        self._choices = [
            ChoiceFormatter(number, spelling, alone=count == 1, calls=calls)
            for number in range(count)
        ]
        self._results: dict[int, Result] = {}

    def document(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The whole answers as a `chat.completion` object."""
        results = [answer.result for answer in answers]
        choices = [
            choice.document(answer) for choice, answer in zip(self._choices, answers, strict=True)
        ]
        return self._head("chat.completion") | {
            "choices": choices,
            "usage": _usage(total_usage(results)),
            **_remarks(results),
        }

    def opening(self) -> Iterator[dict[str, Any]]:
        """Nothing: the first chunk has the role."""
        return iter(())

    def failed(self, failure: Failure) -> dict[str, Any]:
        """OpenAI's clients raise it."""
        return failure.document()

    def chunks(self, event: Event, number: int = 0) -> Iterator[dict[str, Any]]:
        """The chunks to stream for an event. A stage event becomes the field `qwink`."""
        choice = self._choices[number]
        if event.result is not None:
            self._results[number] = event.result
            chunks = [self._chunk(one) for one in choice.end(event.result)]
            yield from chunks[:-1]
            yield from self._end(chunks[-1])
        elif event.stage is not None:
            if number > 0:  # the first answer computes the prompt for all
                return
            progress: dict[str, Any] = {"stage": event.stage}
            if event.stage == "queue":
                progress["place"] = event.place
            yield self._chunk(choice.delta({})) | {"qwink": progress}
        else:
            for one in choice.deltas(event):
                yield self._chunk(one)

    def _end(self, chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The last chunk of an answer, and behind the last answer the usage and remarks."""
        if len(self._results) < len(self._choices):
            yield chunk
            return
        results = [self._results[number] for number in range(len(self._choices))]
        if not self._include_usage:
            yield chunk | _remarks(results)
            return
        yield chunk
        usage = {"choices": [], "usage": _usage(total_usage(results))}
        yield self._head("chat.completion.chunk") | usage | _remarks(results)

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = self._head("chat.completion.chunk") | {"choices": [choice]}
        return chunk | {"usage": None} if self._include_usage else chunk

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


def timings_of(result: Result) -> dict[str, Any]:
    """The result's timings as a dictionary for JSON, rounded to microseconds."""
    return {
        key: round(value, 3) if isinstance(value, float) else value
        for key, value in asdict(result.timings).items()
    }


def total_usage(results: Sequence[Result]) -> Usage:
    """The tokens of all answers; their prompt counts once."""
    completion_tokens = sum(result.usage.completion_tokens for result in results)
    return replace(results[0].usage, completion_tokens=completion_tokens)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "image_tokens": usage.image_tokens,
        },
        "completion_tokens_details": {
            "accepted_prediction_tokens": usage.accepted_prediction_tokens,
            "rejected_prediction_tokens": usage.rejected_prediction_tokens,
        },
    }


def _remarks(results: Sequence[Result]) -> dict[str, Any]:
    """The remarks of one answer, or of several, whose boxes are in the choices."""
    if len(results) == 1:
        return remarks_of(results[0])
    last = max((result.timings for result in results), key=lambda timings: timings.total_ms)
    timings = replace(results[0].timings, total_ms=last.total_ms, generate_ms=last.generate_ms)
    warnings: dict[str, None] = {}
    for number, result in enumerate(results):
        for warning in result.warnings:
            everywhere = all(warning in other.warnings for other in results)
            warnings[warning if everywhere else f"choice {number}: {warning}"] = None
    whole = replace(
        results[0], timings=timings, warnings=tuple(warnings), task=None, boxes=(), points=()
    )
    return remarks_of(whole)


def remarks_of(result: Result) -> dict[str, Any]:
    """What answers have beside OpenAI's fields: the timings and, if there are any, what is located,
    the probabilities of choices, and warnings.
    """
    remarks: dict[str, Any] = {"timings": timings_of(result), **located_in(result)}
    if result.choices:
        remarks["choice_probabilities"] = [asdict(choice) for choice in result.choices]
    if result.warnings:
        remarks["warnings"] = list(result.warnings)
    return remarks
