"""The JSON of a request to /v1/responses: fields of OpenAI and, beside them, qwink's."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

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
from qwink.server.input_items import NO_STORE, InputItem
from qwink.server.schema import COMMON_UNSUPPORTED, MAX_TOOLS, AnswerRequest
from qwink.server.tool_schema import FlatTool

_ONE = "invalid_value"
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
    "conversation": Unsupported(NO_STORE, empty),
    "image": Unsupported("answers are text; leave it out", all_empty),
    "max_tool_calls": Unsupported("it must be a number; leave it out", _count),
    "previous_response_id": Unsupported(NO_STORE, empty),
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
    tools: list[FlatTool] | None = Field(None, max_length=MAX_TOOLS)
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
