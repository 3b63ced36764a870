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
_HOW = 'write {"type": "function", "function": {"name": "...", "parameters": {...}}}'
_HOW_FLAT = 'write {"type": "function", "name": "...", "parameters": {...}}'
_NOT_BUILT_IN = "only tools of type function are supported"


_OF_FLAT = {
    "allowed_callers": Unsupported("the answer calls it; leave it out", among(["direct"], [])),
    "defer_loading": Unsupported(
        "all tools are described; write false or leave it out", among(False), "invalid_value"
    ),
    "output_schema": Unsupported("write it into the description", empty),
}


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
            message = f"{_NOT_BUILT_IN}: {_HOW}"
            raise InvalidField(message, "unsupported_field", "type")
        return tool


class FlatTool(FunctionDefinition):
    """A function as /v1/responses spells it."""

    type: Literal["function"]

    @model_validator(mode="before")
    @classmethod
    def _is_function(cls, tool: Any) -> Any:
        if not isinstance(tool, dict):
            raise InvalidField(f"a tool must be an object: {_HOW_FLAT}")
        if tool.get("type") != "function":
            advice = "define a function, run it yourself and send back a function_call_output"
            message = f"{_NOT_BUILT_IN}; {advice}: {_HOW_FLAT}"
            raise InvalidField(message, "unsupported_field", "type")
        if "function" in tool:
            message = f"this is the spelling of chat completions; {_HOW_FLAT}"
            raise InvalidField(message, field="function")
        return without_unsupported(tool, _OF_FLAT)


def _as_json(arguments: Any) -> Any:
    """Some clients send the arguments back as an object."""
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments or "{}"


JsonText = Annotated[str, BeforeValidator(_as_json, json_schema_input_type=Any)]


class CalledFunction(Lenient):
    """`arguments` is a JSON text, as answers have it."""

    name: str = Field(min_length=1)
    arguments: JsonText = "{}"


class MessageCall(Lenient):
    """A call in a turn of the assistant."""

    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: CalledFunction
    index: Annotated[int, INTEGRAL] | None = None  # as in the chunks of a stream
