"""The items in the output of /v1/responses: texts and calls, as objects and as events of a stream.

An event is its type and its fields; the sequence number is added by who sends it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

ItemEvent = tuple[str, dict[str, Any]]


class MessageItem:
    """A text of the answer."""

    def __init__(self, index: int) -> None:
        """`index`: which item of the output it is."""
        self._id, self._index = f"msg_{uuid.uuid4().hex}", index
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def document(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [self._part()],
        }

    def begin(self) -> Iterator[ItemEvent]:
        item = self.document("in_progress") | {"content": []}
        yield "response.output_item.added", {"output_index": self._index, "item": item}
        yield "response.content_part.added", self._place() | {"part": self._part()}

    def add(self, text: str, logprobs: list[dict[str, Any]]) -> Iterator[ItemEvent]:
        self._texts.append(text)
        self._logprobs += logprobs
        yield "response.output_text.delta", self._place() | {"delta": text, "logprobs": logprobs}

    def end(self, status: str) -> Iterator[ItemEvent]:
        part = self._part()
        said = {"text": part["text"], "logprobs": part["logprobs"]}
        yield "response.output_text.done", self._place() | said
        yield "response.content_part.done", self._place() | {"part": part}
        item = self.document(status)
        yield "response.output_item.done", {"output_index": self._index, "item": item}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self._index, "content_index": 0}

    def _part(self) -> dict[str, Any]:
        return {
            "type": "output_text",
            "text": "".join(self._texts),
            "annotations": [],
            "logprobs": list(self._logprobs),
        }


class CallItem:
    """A call of a function."""

    def __init__(self, index: int, name: str) -> None:
        """`index`: which item of the output it is."""
        self._id, self._index, self._name = f"fc_{uuid.uuid4().hex}", index, name
        self._call_id = f"call_{uuid.uuid4().hex[:24]}"
        self._arguments: list[str] = []

    def document(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._arguments),
        }

    def begin(self) -> Iterator[ItemEvent]:
        item = self.document("in_progress")
        yield "response.output_item.added", {"output_index": self._index, "item": item}

    def add(self, text: str) -> Iterator[ItemEvent]:
        self._arguments.append(text)
        yield "response.function_call_arguments.delta", self._place() | {"delta": text}

    def end(self, status: str) -> Iterator[ItemEvent]:
        item = self.document(status)
        done = {"name": self._name, "arguments": item["arguments"]}
        yield "response.function_call_arguments.done", self._place() | done
        yield "response.output_item.done", {"output_index": self._index, "item": item}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self._index}
