"""The JSON of a request to /v1/responses: fields of OpenAI and, beside them, qwink's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, model_validator

from qwink.server.fields import (
    Count,
    InvalidField,
    Lenient,
    Unsupported,
    all_empty,
    among,
    empty,
    without_unsupported,
)
from qwink.server.messages import AS_PARTS, ChatMessage, Part
from qwink.server.schema import COMMON_UNSUPPORTED, MAX_TOOLS, AnswerRequest
from qwink.server.tool_schema import ResponseTool

_ONE = "invalid_value"
_NO_STORE = "this server stores no answers; send the earlier turns in input"
_NO_ITEM = (
    "items are of type message, function_call or function_call_output; write it as the text of a "
    "message"
)
_CALL_ITEM = 'write items of type "function_call" and "function_call_output"'
_OF_ANSWERS = ("type", "id", "status", "phase", "caller", "created_by", "parsed_arguments")
LOGPROBS = "message.output_text.logprobs"
# What OpenAI can add to an answer about reasoning, tools and inputs: here there is none of it to
# add, so they ask for nothing. Clients send them with each request.
_NEVER_THERE = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)


def _no_reasoning(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    asks_nothing = value.get("effort") in (None, "none", "minimal")
    return asks_nothing and all_empty(value | {"effort": None})


def _count(value: Any) -> bool:
    return isinstance(value, int)


RESPONSE_UNSUPPORTED = COMMON_UNSUPPORTED | {
    "access_programs": Unsupported("leave it out", all_empty),
    "background": Unsupported(
        "answers are not made in the background; write false or leave it out, and stream",
        among(False),
        _ONE,
    ),
    "background_options": Unsupported("leave it out", all_empty),
    "context_management": Unsupported(
        "nothing is left out of a conversation; leave it out and send fewer turns", empty
    ),
    "conversation": Unsupported(_NO_STORE, empty),
    "image": Unsupported("answers are text; leave it out", all_empty),
    "max_tool_calls": Unsupported("this server has no tools of its own; leave it out", _count),
    "previous_response_id": Unsupported(_NO_STORE, empty),
    "prompt": Unsupported("this server stores no prompts; send their text in input", empty),
    "reasoning": Unsupported(
        'this model answers without reasoning first; write {"effort": "none"} or leave it out',
        _no_reasoning,
    ),
    "truncation": Unsupported(
        'nothing is left out of a conversation; write "disabled" or leave it out',
        among("disabled"),
        _ONE,
    ),
}


_NO_CALLS = {
    "tool_calls": Unsupported(_CALL_ITEM, empty),
    "tool_call_id": Unsupported(_CALL_ITEM, empty),
}


class InputItem(ChatMessage):
    """A message, a call of a function, or its result, which a turn of role tool is here."""

    content: Annotated[list[Part], AS_PARTS] = Field(
        validation_alias=AliasChoices("content", "output")
    )

    @model_validator(mode="before")
    @classmethod
    def _is_message(cls, item: Any) -> Any:
        if not isinstance(item, dict):
            raise InvalidField('an item must be an object: {"role": "user", "content": "..."}')
        kind = item.get("type")
        # What answers carry along, and clients send back.
        item = {k: v for k, v in item.items() if k not in _OF_ANSWERS}
        if kind == "function_call":
            return _call(item)
        if kind == "function_call_output":
            return _result(item)
        if kind not in (None, "message"):
            advice = _NO_STORE if kind == "item_reference" else _NO_ITEM
            message = f"this type of item is not supported: {advice}"
            raise InvalidField(message, "unsupported_field", "type")
        if item.get("role") in ("tool", "function"):
            message = f"turns of role {item['role']} are not supported: {_CALL_ITEM}"
            raise InvalidField(message, field="role")
        return without_unsupported(item, _NO_CALLS)


def _call(item: dict[str, Any]) -> dict[str, Any]:
    """A call as a turn of the assistant."""
    name, arguments = item.pop("name", None), item.pop("arguments", None)
    if not isinstance(name, str) or not name:
        raise InvalidField("a call needs the name of its function", field="name")
    if not isinstance(arguments, str):
        message = "a call needs its arguments, a JSON object as a string"
        raise InvalidField(message, field="arguments")
    function = {"name": name, "arguments": arguments}
    call = {"id": _call_id(item), "function": function}
    return item | {"role": "assistant", "tool_calls": [call]}


def _result(item: dict[str, Any]) -> dict[str, Any]:
    """A result as a turn of role tool."""
    if item.get("output") is None:
        raise InvalidField("a result needs output, a string", "missing_field", "output")
    item.pop("name", None)
    return item | {"role": "tool", "tool_call_id": _call_id(item)}


def _call_id(item: dict[str, Any]) -> str:
    name = item.pop("call_id", None)
    if not isinstance(name, str) or not name:
        raise InvalidField("it needs the id of the call, a string", field="call_id")
    return name


class TextOptions(Lenient):
    """OpenAI's field for the form of the answer."""

    format: Any = Field(None, description="Text, any JSON object, or JSON by a schema.")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, options: Any) -> Any:
        advice = 'say in the input how long the answer should be; write "medium" or leave it out'
        return without_unsupported(options, {"verbosity": Unsupported(advice, among("medium"))})


class ResponseRequest(AnswerRequest):
    """A request for a response. Fields that are absent or null take the model's defaults."""

    input: list[InputItem] = Field(min_length=1)
    instructions: str | None = None
    max_output_tokens: Count | None = None
    text: TextOptions | None = None
    tools: list[ResponseTool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: Any = Field(None, description="none, auto, required, or a function's name.")
    parallel_tool_calls: bool | None = None
    include: list[Literal["message.output_text.logprobs"]] | None = None
    is_text: bool = Field(False, exclude=True)  # whether `input` was a string

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, request: Any) -> Any:
        if not isinstance(request, dict):
            raise InvalidField("the body must be a JSON object")
        request = without_unsupported(request, RESPONSE_UNSUPPORTED)
        if isinstance(request.get("include"), list):
            kept = [item for item in request["include"] if item not in _NEVER_THERE]
            request = request | {"include": kept}
        for item in _list(request.get("include")):
            if item != LOGPROBS:
                advice = f"nothing but {LOGPROBS} can be included; leave it out"
                raise InvalidField(advice, "unsupported_field", "include")
        given = request.get("input")
        if given is None:
            raise InvalidField("input is missing", "missing_field", "input")
        is_text = isinstance(given, str)
        if is_text:
            given = [{"role": "user", "content": given}]
        return request | {"input": given, "is_text": is_text}

    @model_validator(mode="after")
    def _is_consistent(self) -> ResponseRequest:
        if self.top_logprobs and not self.include:
            message = f'top_logprobs needs include: ["{LOGPROBS}"]'
            raise InvalidField(message, field="top_logprobs")
        return self


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
