"""The items in the input of /v1/responses: messages, calls and their results, and their turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, model_validator

from qwink.server.fields import InvalidField, Lenient, Unsupported, empty, without_unsupported
from qwink.server.messages import ChatMessage, Part, PlacedMessage, as_parts
from qwink.server.tool_schema import CalledFunction, JsonText, MessageCall

NO_STORE = "this server stores no answers; send the earlier turns in input"
_KINDS = "write items of type message, function_call and function_call_output"
_AS_CALL = 'write items of type "function_call"'
_AS_RESULT = 'write an item of type "function_call_output" with call_id and output'
_OF_MESSAGE = {
    "tool_calls": Unsupported(_AS_CALL, empty),
    "tool_call_id": Unsupported(_AS_RESULT, empty),
}
_OF_CALL = {
    "caller": Unsupported("leave it out", lambda value: value == {"type": "direct"}),
    "namespace": Unsupported("leave it out", empty),
}
# What answers carry along, and clients send back.
_CARRIED = ("id", "status", "phase")


class InputMessage(ChatMessage):
    """A message."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_calls(cls, item: Any) -> Any:
        if item.get("role") in ("tool", "function"):
            message = f"turns of role {item['role']} are not supported: {_AS_RESULT}"
            raise InvalidField(message, field="role")
        item = without_unsupported(item, _OF_MESSAGE)
        return {name: value for name, value in item.items() if name != "type"}


class FunctionCall(Lenient):
    """A call in an earlier answer. `arguments` is a JSON text, as answers have it."""

    type: Literal["function_call"]
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    arguments: JsonText = "{}"

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, item: Any) -> Any:
        return without_unsupported(item, _OF_CALL)


class FunctionOutput(Lenient):
    """The result of a call: a text, or a list of texts and pictures."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1)
    output: Annotated[list[Part], BeforeValidator(as_parts, json_schema_input_type=Any)]
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, item: Any) -> Any:
        return without_unsupported(item, _OF_CALL)


AnyItem = InputMessage | FunctionCall | FunctionOutput


def _read(item: Any) -> AnyItem:
    """The item by its type. Raises InvalidField or ValidationError."""
    if not isinstance(item, dict):
        raise InvalidField('an item must be an object: {"role": "user", "content": "..."}')
    item = {name: value for name, value in item.items() if name not in _CARRIED}
    kind = item.get("type")
    if kind in (None, "message"):
        return InputMessage.model_validate(item)
    if kind == "function_call":
        return FunctionCall.model_validate(item)
    if kind == "function_call_output":
        return FunctionOutput.model_validate(item)
    advice = {"item_reference": NO_STORE, "reasoning": "leave it out"}.get(str(kind), _KINDS)
    message = f"items of this type are not supported: {advice}"
    raise InvalidField(message, "unsupported_field", "type")


InputItem = Annotated[AnyItem, PlainValidator(_read, json_schema_input_type=AnyItem)]


def messages_of(items: Sequence[AnyItem]) -> list[PlacedMessage]:
    """The turns of a conversation. Messages of the assistant and the calls beside them are one."""
    messages: list[PlacedMessage] = []
    for index, item in enumerate(items):
        placed = _placed(item, f"input[{index}]")
        before = messages[-1] if messages else None
        if before is not None and _are_one(before, placed):
            messages[-1] = _joined(before, placed)
        else:
            messages.append(placed)
    return messages


def _placed(item: AnyItem, here: str) -> PlacedMessage:
    kind, call_id = f"{here}.type", f"{here}.call_id"
    if isinstance(item, FunctionCall):
        function = CalledFunction(name=item.name, arguments=item.arguments)
        calls = [MessageCall(id=item.call_id, function=function)]
        message = ChatMessage.model_construct(role="assistant", content=[], tool_calls=calls)
        return PlacedMessage(message, here, kind, call_id, (call_id,))
    if isinstance(item, FunctionOutput):
        message = ChatMessage.model_construct(
            role="tool", content=item.output, tool_call_id=item.call_id
        )
        return PlacedMessage(message, f"{here}.output", kind, call_id)
    return PlacedMessage(item, f"{here}.content", kind, call_id)


def _are_one(before: PlacedMessage, placed: PlacedMessage) -> bool:
    of_answer = before.message.role == placed.message.role == "assistant"
    return of_answer and bool(before.calls or placed.calls)


def _joined(before: PlacedMessage, placed: PlacedMessage) -> PlacedMessage:
    one, other = before.message, placed.message
    message = ChatMessage.model_construct(
        role="assistant",
        content=[*one.content, *other.content],
        tool_calls=[*(one.tool_calls or ()), *(other.tool_calls or ())],
    )
    content = before.content if one.content else placed.content
    return PlacedMessage(
        message, content, before.kind, before.result_of, before.calls + placed.calls
    )
