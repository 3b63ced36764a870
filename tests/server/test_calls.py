"""Calls of tools found in answers, however they are cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.server.calls import Arguments, Begun, CallReader, Piece, Text

ARGUMENTS = json.dumps({"a": 'x}"]<tool_call></tool_call>\\', "b": [{"c": None}]})
CALL = f'<tool_call>\n{{"name": "f", "arguments": {ARGUMENTS}}}\n</tool_call>'
OTHER = '<tool_call>{ "name" : "g\\u0065", "arguments" : {} }</tool_call>'
F: list[Piece] = [Begun(0, "f"), Arguments(0, ARGUMENTS)]

CASES: dict[str, list[Piece]] = {
    "": [],
    "Hello \n": [Text("Hello \n")],
    CALL: F,
    f"Let me see. \n\n{CALL}\n": [Text("Let me see."), *F],
    f"{CALL}\n{OTHER}": [*F, Begun(1, "ge"), Arguments(1, "{}")],
    f"{CALL}\nDone. \n": [*F, Text("Done.")],
    "a <tool_ b < tool_call> <": [Text("a <tool_ b < tool_call> <")],
    # Not the usual form
    '<tool_call>{"arguments": {"x": 1}, "name": "z"}</tool_call>': [
        Begun(0, "z"),
        Arguments(0, '{"x": 1}'),
    ],
    '<tool_call>{"name": "n", "arguments": null}</tool_call>': [
        Begun(0, "n"),
        Arguments(0, "null"),
    ],
    '<tool_call>{"name": "n", "arguments": "a\\"}"}</tool_call>': [
        Begun(0, "n"),
        Arguments(0, '"a\\"}"'),
    ],
    "See <tool_call>nothing</tool_call> there": [Text("See <tool_call>nothing</tool_call> there")],
    '<tool_call>{"name": 1, "arguments": {}}</tool_call>': [
        Text('<tool_call>{"name": 1, "arguments": {}}</tool_call>')
    ],
    f"<tool_call>{'y' * 5000}</tool_call>": [Text(f"<tool_call>{'y' * 5000}</tool_call>")],
    # Cut off
    CALL[:20]: [],
    f"Yes. {CALL[:11]}": [Text("Yes.")],
    CALL[:50]: [Begun(0, "f"), Arguments(0, CALL[CALL.index(ARGUMENTS) : 50])],
    CALL[:-12]: F,
}


def read(text: str, cuts: list[int]) -> list[Piece]:
    """The pieces of a text that comes in parts; neighbouring ones of a kind are joined."""
    reader = CallReader()
    pieces: list[Piece] = []
    for start, stop in pairwise([0, *cuts, len(text)]):
        pieces += reader.feed(text[start:stop])
    pieces += reader.finish()
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, Text) and isinstance(last, Text):
            joined[-1] = Text(last.text + piece.text)
        elif isinstance(piece, Arguments) and isinstance(last, Arguments):
            joined[-1] = Arguments(last.index, last.text + piece.text)
        else:
            joined.append(piece)
    assert reader.num_calls == sum(isinstance(piece, Begun) for piece in joined)
    return joined


@pytest.mark.parametrize(("text", "pieces"), CASES.items(), ids=lambda value: str(value)[:30])
def test_calls_however_the_answer_is_cut(text: str, pieces: list[Piece]) -> None:
    assert read(text, []) == pieces
    assert read(text, list(range(len(text)))) == pieces
    for size in (2, 3, 7):
        assert read(text, list(range(0, len(text), size))) == pieces


@given(st.data())
def test_any_cuts_give_the_same(data: st.DataObject) -> None:
    parts = st.sampled_from([CALL, OTHER, "text ", "<tool_call>", "</tool_call>", "{", '"', "\n"])
    text = "".join(data.draw(st.lists(parts, max_size=6)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    assert read(text, cuts) == read(text, [])


def test_arguments_come_as_they_are_generated() -> None:
    reader = CallReader()
    pieces = [piece for letter in CALL for piece in reader.feed(letter)]
    assert pieces[0] == Begun(0, "f")
    assert pieces[1:] == [Arguments(0, letter) for letter in ARGUMENTS]
