"""The tools of a request: what the answer may or must call, and the calls in the turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from qwink.errors import ShapeError
from qwink.inputs.tokenizer import Tokenizer
from qwink.inputs.tools import Tool, calls_shape, check_tool
from qwink.server.failures import Failure
from qwink.server.messages import ChatMessage
from qwink.server.shapes import Placed, failed_shape
from qwink.server.tool_schema import FunctionDefinition
from qwink.types import Shape


@dataclass(frozen=True, slots=True)
class Spelling:
    """How an endpoint spells tools, for its errors."""

    function: str  # where a tool has its function
    choices: str
    call: str  # the field with call number {} of a turn
    is_result: str  # the field that makes a turn a result
    call_id: str  # the field of a result with the id of its call
    result: str


CHAT = Spelling(
    ".function",
    '"none", "auto", "required" or {"type": "function", "function": {"name": "..."}}',
    "tool_calls[{}]",
    "role",
    "tool_call_id",
    'a turn of role "tool"',
)
RESPONSES = Spelling(
    "",
    '"none", "auto", "required" or {"type": "function", "name": "..."}',
    "call_id",
    "type",
    "call_id",
    'an item of type "function_call_output"',
)


@dataclass(frozen=True, slots=True)
class AskedTools:
    """`described` are the tools that the prompt describes; the answer may call those of `usable`.

    `required`: it must consist of calls. `parallel`: it may have several.
    """

    described: tuple[Tool, ...] = ()
    usable: tuple[Tool, ...] = ()
    required: bool = False
    parallel: bool = True

    def shape(self, tokenizer: Tokenizer, asked: Placed | None) -> Placed | None:
        """The shape of answers that call tools, or else have the shape that was `asked` for.

        Raises Failure.
        """
        if not self.usable:
            return asked
        if find_spec("llguidance") is None:
            if not self.required and asked is None:
                return None  # the model knows the form of calls
            message = "this server cannot do it; its operator can install the extra structured"
            raise _wrong("tool_choice", message)
        other = self._other(asked)
        try:
            shape = calls_shape(
                self.usable,
                tokenizer,
                required=self.required,
                parallel=self.parallel,
                otherwise=other,
            )
        except ShapeError as error:
            raise failed_shape(error, "tools") from None
        return shape, "tools"

    def _other(self, asked: Placed | None) -> Shape | None:
        if asked is None:
            return None
        if asked[0].kind not in ("json_object", "json_schema"):
            field = asked[1].partition(".")[0]
            message = "answers that may call tools can have JSON only; leave it or tools out"
            raise _wrong(field, message)
        return asked[0]


def asked_tools(
    functions: Sequence[FunctionDefinition],
    choice: Any,
    parallel: bool | None,
    spelling: Spelling = CHAT,
) -> AskedTools:
    """What a request's `tools`, `tool_choice` and `parallel_tool_calls` ask for.

    Raises Failure, naming the field.
    """
    places = [f"tools[{index}]{spelling.function}" for index in range(len(functions))]
    described = tuple(map(_tool, functions, places))
    names = [tool.name for tool in described]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise _wrong(f"{places[index]}.name", "another tool has this name; change it")
    required, wanted = _choice(choice, spelling)
    if required and not described:
        raise _wrong("tool_choice", 'there are no tools to call; give tools, or write "none"')
    for name in wanted or ():
        if name not in names:
            raise _wrong("tool_choice", "it names a function that is not among the tools")
    if choice == "none":
        return AskedTools()
    usable = [tool for tool in described if wanted is None or tool.name in wanted]
    return AskedTools(described, tuple(usable), required, _several(choice, parallel))


def _several(choice: Any, parallel: bool | None) -> bool:
    named = isinstance(choice, dict) and choice.get("type") == "function"
    return parallel is not False and not named


def _choice(choice: Any, spelling: Spelling) -> tuple[bool, list[str] | None]:
    """Whether calls are required, and the names that may be called; None: all."""
    if choice is None or choice in ("none", "auto", "required"):
        return choice == "required", None
    if isinstance(choice, dict):
        kind = choice.get("type")
        if kind == "function" and (name := _name(choice)) is not None:
            return True, [name]
        allowed = choice.get("allowed_tools", choice)
        if kind == "allowed_tools" and isinstance(allowed, dict):
            listed = allowed.get("tools")
            names = [_name(tool) for tool in listed] if isinstance(listed, list) else []
            mode = allowed.get("mode", "auto")
            if names and None not in names and mode in ("auto", "required"):
                return mode == "required", [name for name in names if name is not None]
    raise _wrong("tool_choice", f"it must be {spelling.choices}")


def _name(choice: Any) -> str | None:
    """The name of a function, in the spelling of either endpoint."""
    function = choice.get("function", choice) if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _tool(function: FunctionDefinition, place: str) -> Tool:
    parameters = {} if function.parameters is None else {"parameters": function.parameters}
    tool = Tool(function.name, function.description, strict=bool(function.strict), **parameters)
    try:
        check_tool(tool)
    except ShapeError as error:
        raise failed_shape(error, f"{place}.parameters") from None
    return tool


def with_results_in_order(
    messages: Sequence[ChatMessage], places: Sequence[str], spelling: Spelling = CHAT
) -> list[tuple[ChatMessage, str]]:
    """The messages and their places; the results of each turn's calls are in the order of calls.

    The prompt does not say which call a result belongs to. Raises Failure for a result without a
    call, two results of one call, and a call without a result.
    """
    found: list[tuple[ChatMessage, str]] = []
    index = 0
    while index < len(messages):
        message, place = messages[index], places[index]
        if message.role == "tool":
            text = "a result must follow the turn with its call"
            raise _wrong(_sibling(place, spelling.is_result), text)
        found.append((message, place))
        index += 1
        if not message.tool_calls:
            continue
        results: dict[str, tuple[ChatMessage, str]] = {}
        ids = [call.id for call in message.tool_calls]
        while index < len(messages) and messages[index].role == "tool":
            result, here = messages[index], places[index]
            name = result.tool_call_id
            if name not in ids or name in results:
                why = "has a result already" if name in results else "is none of the turn before"
                raise _wrong(_sibling(here, spelling.call_id), f"this call {why}")
            results[name] = result, here
            index += 1
        for number, name in enumerate(ids):
            if name not in results:
                field = _sibling(place, spelling.call.format(number))
                text = f"call {number + 1} of this turn has no result; add {spelling.result}"
                raise _wrong(field, text)
            found.append(results[name])
    return found


def _sibling(place: str, name: str) -> str:
    """The place of another field of the message whose content is at `place`."""
    return f"{place.rpartition('.')[0]}.{name}"


def _wrong(place: str, message: str) -> Failure:
    return Failure(400, f"{place}: {message}", "invalid_value", place)
