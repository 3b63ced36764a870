"""The items of a response's output: a message, and calls of tools, as they are generated."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from qwink.server.calls import Begun, CallReader, Piece, Text
from qwink.server.choice import TokenFormatter
from qwink.types import TokenLogprob

_Event = dict[str, Any]


class OutputItems:
    """Reads one answer and gives OpenAI's events about its items, without sequence numbers."""

    def __init__(self, spelling: TokenFormatter | None, *, calls: bool) -> None:
        """`spelling` formats log-probabilities; None leaves them out. `calls`: whether the answer
        may call tools.
        """
        self._spelling = spelling
        self._reader = CallReader() if calls else None
        self._logprobs: list[TokenLogprob] = []  # of text that is not certain yet
        self._ended: list[dict[str, Any]] = []
        self._open: _Message | _Call | None = None

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The items that have ended."""
        return list(self._ended)

    def feed(self, text: str, logprobs: Iterable[TokenLogprob] = ()) -> Iterator[_Event]:
        """The events of more text."""
        self._logprobs += logprobs
        if self._reader is not None:
            yield from self._pieces(self._reader.feed(text))
        elif text or self._logprobs:
            yield from self._pieces([Text(text)])

    def finish(self, status: str) -> Iterator[_Event]:
        """The events of the answer's end. `status` is that of the last item."""
        if self._reader is not None:
            yield from self._pieces(self._reader.finish())
        if self._open is None:
            yield from self._begin(_Message(len(self._ended)))
        yield from self._end(status)

    def _pieces(self, pieces: Iterable[Piece]) -> Iterator[_Event]:
        for piece in pieces:
            # Only texts have log-probabilities.
            logprobs, self._logprobs = self._logprobs, []
            if isinstance(piece, Begun):
                yield from self._end("completed")
                yield from self._begin(_Call(len(self._ended), piece.name))
            elif isinstance(piece, Text):
                if not isinstance(self._open, _Message):
                    yield from self._end("completed")
                    yield from self._begin(_Message(len(self._ended)))
                spelt = self._spelling.all(logprobs) if self._spelling else []
                assert isinstance(self._open, _Message)
                yield self._open.delta(piece.text, spelt)
            else:
                assert isinstance(self._open, _Call)
                yield self._open.delta(piece.text)

    def _begin(self, item: _Message | _Call) -> Iterator[_Event]:
        self._open = item
        document = item.begun()
        yield _event("output_item.added", output_index=item.index, item=document)
        yield from item.opening()

    def _end(self, status: str) -> Iterator[_Event]:
        item, self._open = self._open, None
        if item is None:
            return
        yield from item.closing()
        self._ended.append(item.document(status))
        yield _event("output_item.done", output_index=item.index, item=self._ended[-1])


class _Message:
    """A message with one text."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._id = f"msg_{uuid.uuid4().hex}"
        self._text = ""
        self._logprobs: list[dict[str, Any]] = []

    def begun(self) -> dict[str, Any]:
        return self._document("in_progress", [])

    def document(self, status: str) -> dict[str, Any]:
        return self._document(status, [self._part()])

    def opening(self) -> Iterator[_Event]:
        yield self._event("content_part.added", part=self._part())

    def delta(self, text: str, logprobs: list[dict[str, Any]]) -> _Event:
        self._text += text
        self._logprobs += logprobs
        return self._event("output_text.delta", delta=text, logprobs=logprobs)

    def closing(self) -> Iterator[_Event]:
        yield self._event("output_text.done", text=self._text, logprobs=self._logprobs)
        yield self._event("content_part.done", part=self._part())

    def _document(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _part(self) -> dict[str, Any]:
        logprobs = list(self._logprobs)
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": logprobs}

    def _event(self, kind: str, **fields: Any) -> _Event:
        place = {"item_id": self._id, "output_index": self.index, "content_index": 0}
        return _event(kind, **place, **fields)


class _Call:
    """A call of a function."""

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        self._id = f"fc_{uuid.uuid4().hex}"
        self._call_id = f"call_{uuid.uuid4().hex[:24]}"
        self._name = name
        self._arguments = ""

    def begun(self) -> dict[str, Any]:
        return self.document("in_progress")

    def document(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self._arguments,
        }

    def opening(self) -> Iterator[_Event]:
        yield from ()

    def delta(self, text: str) -> _Event:
        self._arguments += text
        return self._event("delta", delta=text)

    def closing(self) -> Iterator[_Event]:
        yield self._event("done", name=self._name, arguments=self._arguments)

    def _event(self, kind: str, **fields: Any) -> _Event:
        place = {"item_id": self._id, "output_index": self.index}
        return _event(f"function_call_arguments.{kind}", **place, **fields)


def _event(kind: str, **fields: Any) -> _Event:
    return {"type": f"response.{kind}", **fields}
