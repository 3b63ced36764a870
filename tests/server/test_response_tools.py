"""Tools in responses, requested with OpenAI's client: a random model, and nano."""

from __future__ import annotations

import json
from typing import Any

import openai
import pydantic
import pytest
from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseStreamEvent,
)

from tests.server.process import Server, data_url, png, user

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "strict": True,
}
STOP: dict[str, Any] = {"type": "function", "name": "stop"}
TOOLS = [WEATHER, STOP]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


def ask(client: openai.OpenAI, given: Any = "Weather?", **options: Any) -> Any:
    defaults: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 400}
    defaults |= {"tools": TOOLS, "tool_choice": "required"}
    return client.responses.create(input=given, **defaults | options)


def assert_valid(call: Any) -> None:
    """Assert that a call has its function's parameters, and no others."""
    assert (call.type, call.status) == ("function_call", "completed")
    assert call.id.startswith("fc_")
    assert call.call_id.startswith("call_")
    arguments = json.loads(call.arguments)
    if call.name == "stop":
        assert arguments == {}
        return
    assert call.name == "get_weather"
    assert set(arguments) == {"city", "unit"}
    assert len(arguments["city"]) <= 12
    assert arguments["unit"] in ("celsius", "fahrenheit")


def said(response: Any) -> list[Any]:
    """The items of the output without their ids, which are made anew for each answer."""
    ids = ("id", "call_id")
    items = [item.model_dump() for item in response.output]
    return [{name: value for name, value in item.items() if name not in ids} for item in items]


@pytest.mark.parametrize("seed", range(3))
def test_required_calls_are_valid_whatever_the_weights(client: openai.OpenAI, seed: int) -> None:
    options: dict[str, Any] = {"temperature": 1.2, "extra_body": {"seed": seed}}
    response = ask(client, parallel_tool_calls=False, **options)
    assert response.status == "completed"
    assert response.output_text == ""
    (call,) = response.output
    assert_valid(call)
    Response.model_validate(response.model_dump(warnings=False), strict=False)
    assert response.parallel_tool_calls is False
    assert response.tool_choice == "required"
    assert [tool.name for tool in response.tools] == ["get_weather", "stop"]
    assert [tool.strict for tool in response.tools] == [True, False]


def test_a_named_function_is_called_once(client: openai.OpenAI) -> None:
    for name in ("get_weather", "stop"):
        (call,) = ask(client, tool_choice=named(name)).output
        assert call.name == name
        assert_valid(call)


def test_several_calls_are_several_items(client: openai.OpenAI) -> None:
    for seed in range(8):
        response = ask(client, tools=[STOP], temperature=2, extra_body={"seed": seed})
        assert len({call.call_id for call in response.output}) == len(response.output)
        for call in response.output:
            assert_valid(call)
        if len(response.output) > 1:
            return
    pytest.fail("no answer with several calls")


@pytest.mark.parametrize("choice", ["required", named("get_weather")], ids=str)
def test_a_stream_has_the_same_calls_in_openais_order(client: openai.OpenAI, choice: Any) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "extra_body": {"seed": 5}}
    whole = ask(client, tool_choice=choice, **options)
    events: list[Any] = list(ask(client, tool_choice=choice, stream=True, **options))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert said(events[-1].response) == said(whole)
    checked: Any = pydantic.TypeAdapter(ResponseStreamEvent)
    for event in events[2:-1]:
        checked.validate_python(event.model_dump())
    rest = events[2:-1]
    for index, item in enumerate(events[-1].response.output):
        own = [event for event in rest if event.output_index == index]
        assert own == rest[: len(own)], "an item ends before the next one begins"
        del rest[: len(own)]
        added, *deltas, told, done = own
        assert added.type == "response.output_item.added"
        assert (added.item.status, added.item.arguments) == ("in_progress", "")
        assert {event.type for event in deltas} == {"response.function_call_arguments.delta"}
        assert "".join(event.delta for event in deltas) == item.arguments
        assert len(deltas) > 2 or item.name == "stop", "arguments come while they are generated"
        assert told.type == "response.function_call_arguments.done"
        assert (told.name, told.arguments, told.item_id) == (item.name, item.arguments, item.id)
        assert done.type == "response.output_item.done"
        assert done.item == item
        assert added.item.call_id == item.call_id
    assert not rest


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    unit: str = pydantic.Field(max_length=4)
    days: int = pydantic.Field(ge=1, le=9)


def test_the_clients_parsers(client: openai.OpenAI) -> None:
    tool: Any = openai.pydantic_function_tool(Weather)["function"]
    options: dict[str, Any] = {
        "model": "tiny",
        "input": "Hi",
        "temperature": 0,
        "tools": [{"type": "function", **tool}],
        "tool_choice": named("Weather"),
    }
    parsed = client.responses.parse(**options).output[0]
    assert isinstance(parsed, ResponseFunctionToolCall)
    Weather.model_validate_json(parsed.arguments)
    with client.responses.stream(**options) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds
    assert final.output[0].model_dump()["arguments"] == parsed.arguments


def test_text_or_calls_as_the_model_likes(client: openai.OpenAI) -> None:
    """A random model writes text, in which nothing is a call."""
    options: dict[str, Any] = {"tool_choice": "auto", "max_output_tokens": 12}
    response = ask(client, **options)
    (message,) = response.output
    assert (message.type, message.status) == ("message", "incomplete")
    assert message.content[0].text
    events = list(ask(client, stream=True, **options))
    assert said(events[-1].response) == said(response)


def test_chat_completions_say_the_same(client: openai.OpenAI) -> None:
    (call,) = ask(client, tool_choice=named("get_weather")).output
    tools: Any = [{"type": "function", "function": {k: v for k, v in WEATHER.items()
                                                    if k != "type"}}]  # fmt: skip
    stop: Any = {"type": "function", "function": {"name": "stop"}}
    choice: Any = {"type": "function", "function": {"name": "get_weather"}}
    chat = client.chat.completions.create(
        model="tiny",
        messages=[user("Weather?")],
        temperature=0,
        max_tokens=400,
        tools=[*tools, stop],
        tool_choice=choice,
    )
    calls: Any = chat.choices[0].message.tool_calls
    assert calls[0].function.arguments == call.arguments


def test_none_leaves_the_tools_out(client: openai.OpenAI) -> None:
    without = ask(client, tools=[], tool_choice="auto", max_output_tokens=6)
    answer = ask(client, tool_choice="none", max_output_tokens=6)
    assert answer.usage.input_tokens == without.usage.input_tokens
    assert answer.output_text == without.output_text


def test_allowed_tools_may_be_called(client: openai.OpenAI) -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [named("stop")]}
    assert {call.name for call in ask(client, tool_choice=choice).output} == {"stop"}


def test_a_call_that_is_cut_off(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"tool_choice": named("get_weather"), "max_output_tokens": 50}
    response = ask(client, **options)
    assert response.status == "incomplete"
    (call,) = response.output
    assert (call.name, call.status) == ("get_weather", "incomplete")
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(call.arguments)
    events = list(ask(client, stream=True, **options))
    assert events[-1].type == "response.incomplete"
    assert said(events[-1].response) == said(response)


def test_calls_or_json(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    form: Any = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    for item in ask(client, tool_choice="auto", text=form).output:
        if item.type == "message":
            assert json.loads(item.content[0].text) in ({"a": 1}, {"a": 2})
        else:
            assert_valid(item)


# Calls and results in the input


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": "get_weather",
            "arguments": '{"city": "Paris"}'}  # fmt: skip


def result(name: str, output: Any = "sunny") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": output}


def test_an_agents_loop(client: openai.OpenAI) -> None:
    """The output goes back as it came, followed by results."""
    items: list[Any] = [user("Weather?")]
    for _ in range(2):
        response = ask(client, items, tool_choice=named("get_weather"))
        items += [item.model_dump() for item in response.output]
        items += [result(item.call_id) for item in response.output]
    last = ask(client, items, tool_choice="none", max_output_tokens=4)
    assert last.output_text
    assert not hasattr(last, "warnings")
    again = ask(client, items, tool_choice="none", max_output_tokens=4)
    assert again.usage.input_tokens_details.cached_tokens > 0


def test_items_are_the_turns_of_chat_completions(client: openai.OpenAI) -> None:
    """Text and calls of one answer are one turn, and results have the order of the calls."""
    told = {"role": "assistant", "content": "Let me see."}
    items = [user("Hi"), told, call("a"), call("b"), result("b", "rainy"), result("a")]
    response = ask(client, items, tool_choice="none", max_output_tokens=6)
    function = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    calls = [{"id": name, "type": "function", "function": function} for name in "ab"]
    messages: list[Any] = [
        user("Hi"),
        told | {"tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "content": "rainy"},
    ]
    chat = client.chat.completions.create(
        model="tiny", messages=messages, temperature=0, max_tokens=6
    )
    assert response.usage.input_tokens == getattr(chat.usage, "prompt_tokens", None)
    assert response.output_text == chat.choices[0].message.content


def test_a_result_may_be_a_picture(client: openai.OpenAI) -> None:
    parts = [{"type": "input_image", "image_url": data_url(png(3))},
             {"type": "input_text", "text": "the sky"}]  # fmt: skip
    extra = {"min_pixels": 16384, "max_pixels": 16384}
    items = [user("Weather?"), call("a"), result("a", parts)]
    answer = ask(client, items, tool_choice="none", max_output_tokens=2, extra_body=extra)
    assert answer.usage.input_tokens_details.image_tokens == 16


HI = user("Hi")
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "run it yourself"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].function",
     "the spelling of chat completions"),
    ({"tools": [named("a b")]}, "tools[0].name", ""),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "missing"),
    ({"tools": [STOP, STOP]}, "tools[1].name", "another tool has this name"),
    ({"tools": [STOP] * 129}, "tools", "128"),
    ({"tools": [STOP | {"parameters": {"type": "array"}}]}, "tools[0].parameters", '"object"'),
    ({"tools": [STOP | {"defer_loading": True}]}, "tools[0].defer_loading", "write false"),
    ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
    ({"tools": TOOLS, "tool_choice": named("go")}, "tool_choice", "not among the tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice", '"required"'),
    ({"tools": TOOLS, "include": ["message.output_text.logprobs"]}, "include", "leave one out"),
    ({"input": [HI, result("a")]}, "input[1].type", "must follow"),
    ({"input": [HI, call("a")]}, "input[1].call_id", "has no result"),
    ({"input": [HI, call("a"), call("b"), result("a")]}, "input[2].call_id", "has no result"),
    ({"input": [HI, call("a"), result("c")]}, "input[2].call_id", "is none of"),
    ({"input": [HI, call("a"), result("a"), result("a")]}, "input[3].call_id", "already"),
    ({"input": [HI, call("a"), {"type": "function_call_output", "call_id": "a"}]},
     "input[2].output", "missing"),
    ({"input": [HI, call("a"), result("a", [{"type": "input_text"}])]}, "input[2].output[0].text",
     "needs the field text"),
    ({"input": [HI, call("a") | {"name": 1}]}, "input[1].name", "string"),
    ({"input": [HI, {"type": "web_search_call"}]}, "input[1].type", "function_call_output"),
    ({"input": [HI, {"role": "tool", "content": "x"}]}, "input[1].role", "function_call_output"),
    ({"input": [call("a"), result("a")]}, "input", "no turn of the user"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "words"), BAD, ids=lambda value: str(value)[:40])
def test_refusals_name_the_field(
    server: Server, fields: dict[str, Any], param: str, words: str
) -> None:
    body = {"model": "tiny", "input": "Hi", "max_output_tokens": 2} | fields
    response = server.http.post(f"{server.address}/v1/responses", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert words in error["message"]


def test_nano_calls_tools(nano_server: Server) -> None:
    """Nano's tokenizer has no tokens for the marks."""
    content = [{"type": "input_image", "image_url": data_url(png(1))},
               {"type": "input_text", "text": "What does it say?"}]  # fmt: skip
    with nano_server.client() as client:
        items = [{"role": "user", "content": content}]
        (one,) = ask(client, items, model="nano", parallel_tool_calls=False).output
        assert_valid(one)
        auto = ask(client, items, model="nano", tool_choice="auto")
        assert auto.output_text
