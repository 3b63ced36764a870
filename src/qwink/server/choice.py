"""One of the choices of a chat completion, whole or as the deltas of a stream."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from qwink.inputs.tokenizer import Tokenizer
from qwink.server.calls import Begun, CallReader, Piece, Text
from qwink.server.sse import Answer
from qwink.types import Event, Result, TokenLogprob

_LEAST_LOGPROB = -9999.0  # JSON has no minus infinity; OpenAI sends this value instead


class ChoiceFormatter:
    """Formats one answer as an entry of `choices`."""

    def __init__(
        self,
        number: int,
        spelling: TokenFormatter | None,
        *,
        alone: bool = True,
        calls: bool = False,
    ) -> None:
        """`spelling` formats log-probabilities; None leaves them out. `alone`: there are no other
        choices, and what the answer locates is beside the choice. `calls`: whether the answer may
        call tools.
        """
        self._number, self._spelling, self._alone = number, spelling, alone
        self._reader = CallReader() if calls else None
        self._role_sent = False
        self._logprobs: list[TokenLogprob] = []  # of text that is not certain yet

    def document(self, answer: Answer) -> dict[str, Any]:
        """The whole answer."""
        result = answer.result
        message: dict[str, Any] = {"role": "assistant", "content": result.text, "refusal": None}
        if self._reader is not None:
            pieces = [*self._reader.feed(result.text), *self._reader.finish()]
            message |= _called(pieces)
        return {
            "index": self._number,
            "message": message,
            "logprobs": self._content(answer.logprobs),
            **self._finish(result),
        }

    def deltas(self, event: Event) -> Iterator[dict[str, Any]]:
        """What a stream sends for a new piece of text."""
        if self._reader is not None:
            self._logprobs += event.logprobs
            yield from self._pieces(self._reader.feed(event.text))
        elif event.text or event.logprobs:
            yield self.delta({"content": event.text}, event.logprobs)

    def end(self, result: Result) -> Iterator[dict[str, Any]]:
        """What a stream sends when the answer has ended; the last one has the finish reason."""
        if self._reader is not None:
            yield from self._pieces(self._reader.finish())
        yield self.delta({}, self._take_logprobs()) | self._finish(result)

    def _pieces(self, pieces: Iterator[Piece]) -> Iterator[dict[str, Any]]:
        for piece in pieces:
            yield self.delta(_delta(piece), self._take_logprobs())

    def _take_logprobs(self) -> list[TokenLogprob]:
        taken, self._logprobs = self._logprobs, []
        return taken

    def delta(self, delta: dict[str, Any], logprobs: Iterable[TokenLogprob] = ()) -> dict[str, Any]:
        """The entry of a chunk; the first one has the role."""
        if not self._role_sent:
            self._role_sent = True
            begun: dict[str, Any] = {"role": "assistant", "content": None if self._reader else ""}
            delta = begun | delta
        content = self._content(logprobs)
        if content is not None and not content["content"]:
            content = None
        return {"index": self._number, "delta": delta, "logprobs": content, "finish_reason": None}

    def _finish(self, result: Result) -> dict[str, Any]:
        finish = _finish(result)
        called = self._reader is not None and self._reader.num_calls > 0
        if called and finish["finish_reason"] == "stop":
            finish["finish_reason"] = "tool_calls"
        return finish | ({} if self._alone else located_in(result))

    def _content(self, logprobs: Iterable[TokenLogprob]) -> dict[str, Any] | None:
        """OpenAI's `logprobs` object."""
        if self._spelling is None:
            return None
        return {"content": self._spelling.all(logprobs), "refusal": None}


def _called(pieces: Iterable[Piece]) -> dict[str, Any]:
    """The fields of a message that calls tools; its text is null if there is none."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if isinstance(piece, Text):
            texts.append(piece.text)
        elif isinstance(piece, Begun):
            calls.append(_call(piece.name))
        else:
            calls[piece.index]["function"]["arguments"] += piece.text
    text = "".join(texts)
    return {"content": text or None, "tool_calls": calls} if calls else {"content": text}


def _delta(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, Text):
        return {"content": piece.text}
    if isinstance(piece, Begun):
        return {"tool_calls": [{"index": piece.index, **_call(piece.name)}]}
    return {"tool_calls": [{"index": piece.index, "function": {"arguments": piece.text}}]}


def _call(name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": ""}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


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


def located_in(result: Result) -> dict[str, Any]:
    """The boxes and points of an answer, if it was to locate something or did."""
    if result.task != "locate" and not result.boxes and not result.points:
        return {}
    return {
        "boxes": [asdict(box) for box in result.boxes],
        "points": [asdict(point) for point in result.points],
    }


def _finish(result: Result) -> dict[str, Any]:
    """The finish reason. OpenAI has no "repetition", so clients get "length": it was cut off."""
    reason = "length" if result.finish_reason == "repetition" else result.finish_reason
    return {"finish_reason": reason, "qwink_finish_reason": result.finish_reason}
