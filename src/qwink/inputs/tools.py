"""Tools that an answer may call, in the form that Qwen's chat templates ask for.

A call is `<tool_call>`, a line with `{"name": ..., "arguments": {...}}`, and `</tool_call>`. The
two marks are tokens of Qwen's tokenizers; for one that lacks them they are plain text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qwink.errors import ShapeError
from qwink.inputs.shape import MAX_BYTES, schema_shape
from qwink.inputs.tokenizer import Tokenizer
from qwink.types import Shape

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALLS = 16  # in one answer

_SCHEMA_OF_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
# Keywords with which closing a schema's objects would change more than unnamed properties.
_COMPOSED = (
    "additionalProperties",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "$ref",
    "patternProperties",
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the answer may call. `parameters` is a JSON Schema of an object."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=lambda: _SCHEMA_OF_NOTHING)
    strict: bool = False

    def described(self) -> dict[str, Any]:
        """As chat templates take it."""
        told = {} if self.description is None else {"description": self.description}
        function = {"name": self.name, **told, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def check_tool(tool: Tool) -> None:
    """Raises ShapeError if the parameters are no schema, or too large a one."""
    if tool.parameters.get("type", "object") != "object":
        raise ShapeError("schema", 'the type of parameters must be "object"')
    schema_shape(_closed(tool.parameters), strict=tool.strict)


def calls_shape(
    tools: Sequence[Tool],
    tokenizer: Tokenizer,
    *,
    required: bool,
    parallel: bool,
    otherwise: Shape | None = None,
) -> Shape:
    """Answers that call tools, with arguments that have the tools' schemas.

    `required`: the answer consists of calls; otherwise of text, which calls may follow or replace.
    `parallel`: there may be several calls. `otherwise`: JSON of this shape may stand for the calls
    instead of text. Raises ShapeError.
    """
    known = tokenizer.added_tokens
    marks = OPEN in known and CLOSE in known
    end = f"<[{known[CLOSE]}]>" if marks else _literal(CLOSE)
    begin = f"<[{known[OPEN]}]>" if marks else _literal(OPEN)
    more = f'("\\n" {begin} tail){{0,{MAX_CALLS - 1}}}' if parallel else ""
    names = " | ".join(f"tool{index}" for index in range(len(tools)))
    rules = [
        # A text that looks like a call is none.
        f"TEXT: /(?s:.+)/ & ~/(?s:.*){OPEN}(?s:.*)/",
        f"calls: {begin} tail {more}",
        f'tail: "\\n{{\\"name\\": \\"" ({names}) "}}\\n" {end}',
    ]
    if required:
        start = "start: calls"
    elif otherwise is not None:
        given = json.loads(otherwise.source or '{"type": "object"}')
        start = f"start: calls | answer\nanswer: %json {_schema(given, otherwise.strict)}"
    elif marks:
        start = "start: TEXT? calls?"
    else:  # the text up to the first mark is one lexeme, which ends with the mark
        start = f"start: TEXT? | opening tail {more}\nopening[lazy]: /(?s:.*){OPEN}/"
    for index, tool in enumerate(tools):
        head = _literal(f'{tool.name}", "arguments": ')
        schema = _schema({"type": "object"} | _closed(tool.parameters), tool.strict)
        rules.append(f"tool{index}: {head} %json {schema}")
    source = "\n".join([start, *rules])
    if len(source.encode()) > MAX_BYTES:
        message = f"together they take more than {MAX_BYTES >> 10} KiB; shorten them"
        raise ShapeError("grammar", message)
    return Shape("grammar", source, free=not required and otherwise is None)


def _schema(schema: Mapping[str, Any], strict: bool) -> str:
    options = {"whitespace_flexible": False, "lenient": not strict}
    return json.dumps({**schema, "x-guidance": options}, ensure_ascii=False)


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without unnamed properties, unless it says something about them."""
    schema = dict(schema)
    if not any(key in schema for key in _COMPOSED):
        schema["additionalProperties"] = False
    return schema


def _literal(text: str) -> str:
    return json.dumps(text)
