"""The JSON of tools, and of calls in the turns of a conversation."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from qwink.server.fields import (
    INTEGRAL,
    InvalidField,
    Lenient,
    Unsupported,
    among,
    empty,
    without_unsupported,
)

_NAME = r"^[a-zA-Z0-9_-]{1,64}$"
_HOW_FLAT = 'write {"type": "function", "name": "...", "parameters": {...}}'
_HOW = 'write {"type": "function", "function": {"name": "...", "parameters": {...}}}'


class FunctionDefinition(Lenient):
    """A function that the answer may call. `strict`: keywords that cannot be enforced are refused.

    `parameters` is a JSON Schema of an object; without one, the function has no parameters.
    """

    name: str = Field(pattern=_NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Lenient):
    type: Literal["function"]
    function: FunctionDefinition

    @model_validator(mode="before")
    @classmethod
    def _is_function(cls, tool: Any) -> Any:
        if not isinstance(tool, dict):
            raise InvalidField(f"a tool must be an object: {_HOW}")
        if tool.get("type") != "function":
            message = f"only tools of type function are supported: {_HOW}"
            raise InvalidField(message, "unsupported_field", "type")
        return tool


_OF_RESPONSES = {
    "allowed_callers": Unsupported(
        'calls are for your program; write ["direct"] or leave it out',
        lambda value: value in ([], ["direct"]),
    ),
    "defer_loading": Unsupported(
        "the prompt describes all tools; write false or leave it out", among(False)
    ),
    "output_schema": Unsupported("say in description what the function returns", empty),
}


class ResponseTool(FunctionDefinition):
    """A function that a response may call."""

    type: Literal["function"]

    @model_validator(mode="before")
    @classmethod
    def _is_function(cls, tool: Any) -> Any:
        if not isinstance(tool, dict):
            raise InvalidField(f"a tool must be an object: {_HOW_FLAT}")
        if "function" in tool and "name" not in tool:
            message = f"this is the form of /v1/chat/completions; {_HOW_FLAT}"
            raise InvalidField(message, field="function")
        if tool.get("type") != "function":
            message = (
                "this server has no tools of its own, it only calls functions that your program "
                f"runs; {_HOW_FLAT}"
            )
            raise InvalidField(message, "unsupported_field", "type")
        return without_unsupported(tool, _OF_RESPONSES)

    def document(self) -> dict[str, Any]:
        """As answers repeat it."""
        names = ("type", "name", "description", "parameters", "strict")
        return {name: getattr(self, name) for name in names}


def _as_json(arguments: Any) -> Any:
    """Some clients send the arguments back as an object."""
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments or "{}"


class CalledFunction(Lenient):
    """`arguments` is a JSON text, as answers have it."""

    name: str = Field(min_length=1)
    arguments: Annotated[str, BeforeValidator(_as_json, json_schema_input_type=Any)] = "{}"


class MessageCall(Lenient):
    """A call in a turn of the assistant."""

    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: CalledFunction
    index: Annotated[int, INTEGRAL] | None = None  # as in the chunks of a stream
