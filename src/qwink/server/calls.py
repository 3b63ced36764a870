"""Finds the calls of tools in an answer while it is generated.

A call is `<tool_call>`, `{"name": "...", "arguments": {...}}`, `</tool_call>`. Its name and the
pieces of its arguments are given as soon as they are there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from qwink.inputs.tools import CLOSE, OPEN

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
_MAX_HEAD = 4096  # characters before the arguments; a longer text is no call


@dataclass(frozen=True, slots=True)
class Text:
    """Text outside of calls."""

    text: str


@dataclass(frozen=True, slots=True)
class Begun:
    """Call number `index` has begun."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


Piece = Text | Begun | Arguments


class CallReader:
    """Reads one answer. The pieces do not depend on how the answer is cut, but for their sizes.

    Whitespace around calls is left out. What stands between the marks and is no call is text; the
    beginning of a call that was cut off before its arguments is left out.
    """

    def __init__(self) -> None:
        self.num_calls = 0
        self._text = ""  # not read yet
        self._state = self._outside
        self._value = _Value()
        self._said = False  # whether there was text since the last call
        self._gap = ""  # the whitespace in front of the mark

    def feed(self, text: str) -> Iterator[Piece]:
        """The pieces that are certain after more text."""
        self._text += text
        yield from self._read(last=False)

    def finish(self) -> Iterator[Piece]:
        """What is left when the answer has ended."""
        yield from self._read(last=True)

    def _read(self, *, last: bool) -> Iterator[Piece]:
        while True:
            before = self._state, self._text
            yield from self._state(last)
            if (self._state, self._text) == before:
                return

    def _outside(self, last: bool) -> Iterator[Piece]:
        begin = self._text.find(OPEN)
        if begin >= 0:
            text = self._text[:begin].rstrip()
            yield from self._say(text)
            self._gap = self._text[len(text) : begin] if self._said else ""
            self._text = self._text[begin + len(OPEN) :]
            self._state = self._head
            return
        end = len(self._text) if last else _certain(self._text)
        text = self._text[:end]
        # Line breaks in front of a call, or behind the last one, belong to the form of calls.
        kept = text if last and not self.num_calls else text.rstrip()
        yield from self._say(kept)
        self._text = "" if last else self._text[len(kept) :]

    def _say(self, text: str) -> Iterator[Piece]:
        if self.num_calls and not self._said:
            text = text.lstrip()
        if text:
            self._said = True
            yield Text(text)

    def _head(self, last: bool) -> Iterator[Piece]:
        found = _HEAD.match(self._text)
        end = self._text.find(CLOSE)
        if found and (end < 0 or found.end() <= end):
            self._said = False
            yield Begun(self.num_calls, json.loads(found[1]))
            self._text = self._text[found.end() :]
            self._value = _Value()
            self._state = self._arguments
        elif end >= 0:
            yield from self._odd(self._text[:end])
            self._text = self._text[end + len(CLOSE) :]
            self._state = self._outside
        elif len(self._text) > _MAX_HEAD:
            yield Text(self._gap + OPEN + self._text)
            self._text = ""
            self._state = self._outside
        elif last:
            self._text = ""

    def _odd(self, text: str) -> Iterator[Piece]:
        """What stands between the marks: a call with its fields in another order, or no call."""
        try:
            call = json.loads(text)
            name, arguments = call["name"], call["arguments"]
        except (ValueError, KeyError, TypeError, RecursionError):
            name, arguments = None, None
        if not isinstance(name, str):
            yield Text(self._gap + OPEN + text + CLOSE)
            return
        self._said = False
        yield Begun(self.num_calls, name)
        yield Arguments(self.num_calls, json.dumps(arguments, ensure_ascii=False))
        self.num_calls += 1

    def _arguments(self, last: bool) -> Iterator[Piece]:
        taken = self._value.read(self._text)
        if taken:
            yield Arguments(self.num_calls, self._text[:taken])
            self._text = self._text[taken:]
        if self._value.ended or last:
            self.num_calls += 1
            self._state = self._tail

    def _tail(self, last: bool) -> Iterator[Piece]:
        end = self._text.find(CLOSE)
        if end >= 0:
            self._text = self._text[end + len(CLOSE) :]
            self._state = self._outside
        elif last:
            self._text = ""
        yield from ()


class _Value:
    """Finds the end of a JSON value that comes in pieces."""

    def __init__(self) -> None:
        self.ended = False
        self._depth = 0
        self._in_string = self._escaped = False

    def read(self, text: str) -> int:
        """How many characters of `text` belong to the value; `ended` says whether it is whole."""
        for place, character in enumerate(text):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
                    if not self._depth:
                        self.ended = True
                        return place + 1
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                if not self._depth:  # the end of the call behind a number, true, false or null
                    self.ended = True
                    return place
                self._depth -= 1
                if not self._depth:
                    self.ended = True
                    return place + 1
        return len(text)


def _certain(text: str) -> int:
    """How much of a text cannot be the beginning of a mark."""
    for size in range(min(len(OPEN) - 1, len(text)), 0, -1):
        if text.endswith(OPEN[:size]):
            return len(text) - size
    return len(text)
