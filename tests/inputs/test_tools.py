"""The shape of answers that call tools."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwink.errors import ShapeError
from qwink.inputs.shape import schema_shape
from qwink.inputs.tokenizer import Tokenizer
from qwink.inputs.tools import MAX_CALLS, Tool, calls_shape, check_tool
from qwink.runtime.grammars import Grammars
from qwink.server.calls import Arguments, Begun, CallReader, Piece
from qwink.types import Shape
from tests.tiny import write_tokenizer

NANO = Path(__file__).parents[2] / "src" / "qwink" / "assets" / "nano"
LETTERS = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}}
TOOLS = [Tool("f", "does f", LETTERS), Tool("stop"), Tool("f_2", parameters=LETTERS, strict=True)]


@pytest.fixture(scope="module", params=["marks are tokens", "marks are text"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Tokenizer:
    if request.param == "marks are text":
        return Tokenizer.load(NANO)
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    forbidden = tokenizer.forbidden_ids(tokenizer.vocab_size)
    return Grammars(tokenizer, tokenizer.vocab_size, forbidden)


def spelt(text: str, tokenizer: Tokenizer) -> list[int]:
    """The tokens of a text, in which a mark is one where the tokenizer has it."""
    mark = tokenizer.added_tokens.get("<tool_call>")
    if mark is None:
        return tokenizer.encode_text(text)
    first, *parts = map(tokenizer.encode_text, text.split("<tool_call>"))
    return [*first, *(token for part in parts for token in (mark, *part))]


def walk(
    grammars: Grammars, tokenizer: Tokenizer, shape: Shape, seed: int, begin: str = ""
) -> tuple[str, bool]:
    """An answer of random tokens that begins with a text, and whether it is whole."""
    constraint, _ = grammars.constraint(shape)
    planned = spelt(begin, tokenizer)
    chance, tokens = random.Random(seed), list[int]()
    while len(tokens) < 600 and not constraint.stopped:
        forced = constraint.forced()
        if forced:
            token = forced[0]
        else:
            allowed = np.flatnonzero(constraint.mask())
            token = planned[len(tokens)] if len(tokens) < len(planned) else chance.choice(allowed)
            assert token in allowed
            if token in tokenizer.eos_ids:
                break
        constraint.accept(int(token))
        tokens.append(int(token))
    text = b"".join(map(tokenizer.token_bytes, tokens)).decode(errors="replace")
    return text, constraint.complete


def read(text: str) -> list[Piece]:
    reader = CallReader()
    return [*reader.feed(text), *reader.finish()]


def calls(text: str) -> list[tuple[str, Any]]:
    """The calls of an answer that has nothing else."""
    pieces = read(text)
    names = [piece.name for piece in pieces if isinstance(piece, Begun)]
    found = [json.loads(piece.text) for piece in pieces if isinstance(piece, Arguments)]
    assert len(pieces) == 2 * len(names)
    return list(zip(names, found, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_required_calls(grammars: Grammars, tokenizer: Tokenizer, seed: int) -> None:
    shape = calls_shape(TOOLS, tokenizer, required=True, parallel=seed % 2 == 0)
    text, complete = walk(grammars, tokenizer, shape, seed)
    assert complete
    found = calls(text)
    assert 1 <= len(found) <= (MAX_CALLS if seed % 2 == 0 else 1)
    for name, arguments in found:
        assert name in ("f", "stop", "f_2")
        assert set(arguments) <= ({"a"} if name != "stop" else set())
        assert len(arguments.get("a", "")) <= 3
    assert text.startswith('<tool_call>\n{"name": "'), "the form that the template asks for"
    assert text.endswith("}\n</tool_call>")


@pytest.mark.parametrize("begin", ["Hi <tool_call>", "<tool_call>", "a\n\n<tool_call>"])
def test_calls_behind_free_text(grammars: Grammars, tokenizer: Tokenizer, begin: str) -> None:
    shape = calls_shape(TOOLS, tokenizer, required=False, parallel=True)
    text, complete = walk(grammars, tokenizer, shape, 3, begin)
    assert complete
    assert text.startswith(begin)
    assert calls(text[text.index("<tool_call>") :])


def test_free_text_without_calls(grammars: Grammars, tokenizer: Tokenizer) -> None:
    shape = calls_shape(TOOLS, tokenizer, required=False, parallel=True)
    assert shape.free
    constraint, _ = grammars.constraint(shape)
    assert constraint.complete, "an answer may be empty"
    text, complete = walk(grammars, tokenizer, shape, 1, "Just text")
    assert text.startswith("Just text")
    assert complete or "<tool_call>" in text


def test_json_instead_of_calls(grammars: Grammars, tokenizer: Tokenizer) -> None:
    schema = {"type": "object", "properties": {"z": {"type": "boolean"}}, "required": ["z"],
              "additionalProperties": False}  # fmt: skip
    shape = calls_shape(
        TOOLS, tokenizer, required=False, parallel=True, otherwise=schema_shape(schema)
    )
    assert not shape.free
    text, _ = walk(grammars, tokenizer, shape, 0, '{"z"')
    assert json.loads(text)["z"] in (True, False)
    text, _ = walk(grammars, tokenizer, shape, 0, "<tool_call>")
    assert calls(text)


def test_objects_are_closed_unless_they_say_otherwise(
    grammars: Grammars, tokenizer: Tokenizer
) -> None:
    def allows(parameters: dict[str, Any], text: str) -> bool:
        shape = calls_shape([Tool("f", None, parameters)], tokenizer, required=True, parallel=False)
        constraint, _ = grammars.constraint(shape)
        begun = b""
        while forced := constraint.forced():
            begun += tokenizer.token_bytes(forced[0])
            constraint.accept(forced[0])
        head = '<tool_call>\n{"name": "f", "arguments": '
        tokens = tokenizer.encode_text((head + text).removeprefix(begun.decode()))
        return constraint.num_allowed(tokens) == len(tokens)

    optional = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert allows(optional, '{"a":1}')
    assert not allows(optional, '{"b":1}')
    assert allows(optional | {"additionalProperties": {"type": "integer"}}, '{"b":1}')
    nested = {"$defs": {"x": optional}, "allOf": [{"$ref": "#/$defs/x"}]}
    assert allows(nested, '{"a":1')


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"type": "string"}, '"object"'),
        ({"properties": {"a": {"pattern": "(a{100}){1000}"}}}, "repetitions"),
        ({"properties": {"a": {"enum": ["x" * 300_000]}}}, "KiB"),
        ({"properties": {"a": float("nan")}}, "JSON"),
    ],
)
def test_parameters_that_are_refused(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        check_tool(Tool("f", parameters=parameters))


def test_many_large_tools_are_refused_together(tokenizer: Tokenizer) -> None:
    tool = Tool("f", parameters={"properties": {"a": {"enum": ["x" * 100_000]}}})
    check_tool(tool)
    with pytest.raises(ShapeError, match="together they take more than"):
        calls_shape([tool] * 3, tokenizer, required=True, parallel=False)
