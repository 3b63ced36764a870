"""Tools in responses, requested with OpenAI's client: a random model, and nano."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field

from tests.server.process import Server, image, user

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "strict": None,
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "unit"],
    },
}
STOP: dict[str, Any] = {"type": "function", "name": "stop", "parameters": None, "strict": None}
TOOLS = [WEATHER, STOP]
NAMED: dict[str, Any] = {"type": "function", "name": "get_weather"}


class Weather(BaseModel):
    city: str = Field(max_length=12)
    unit: Literal["celsius", "fahrenheit"]


def ask(client: openai.OpenAI, given: Any = "Weather?", **options: Any) -> Any:
    defaults: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 400}
    defaults |= {"tools": TOOLS, "tool_choice": "required"}
    return client.responses.create(input=given, **defaults | options)


def assert_valid(call: Any, status: str = "completed") -> None:
    assert (call.type, call.status) == ("function_call", status)
    assert call.call_id.startswith("call_")
    assert call.id.startswith("fc_")
    if call.name == "stop":
        assert json.loads(call.arguments) == {}
    else:
        assert call.name == "get_weather"
        Weather.model_validate_json(call.arguments)


@pytest.mark.parametrize("seed", range(4))
def test_calls_are_valid_whatever_the_weights(client: openai.OpenAI, seed: int) -> None:
    extra = {"seed": seed}
    answer = ask(client, temperature=1.5, parallel_tool_calls=False, extra_body=extra)
    (call,) = answer.output
    assert_valid(call)
    assert (answer.status, answer.output_text) == ("completed", "")
    assert answer.parallel_tool_calls is False
    assert answer.tool_choice == "required"
    assert [tool.name for tool in answer.tools] == ["get_weather", "stop"]


def test_several_calls_and_named_ones(client: openai.OpenAI) -> None:
    """Random models do not stop calling, until there are 16 calls."""
    for seed in range(8):
        calls = ask(client, tools=[STOP], temperature=2, extra_body={"seed": seed}).output
        assert 1 <= len({call.call_id for call in calls}) == len(calls) <= 16
        if len(calls) > 1:
            break
    else:
        pytest.fail("no answer with several calls")
    (call,) = ask(client, tool_choice=NAMED).output
    assert call.name == "get_weather"
    allowed = {"type": "allowed_tools", "mode": "required",
               "tools": [{"type": "function", "name": "stop"}]}  # fmt: skip
    assert {call.name for call in ask(client, tool_choice=allowed).output} == {"stop"}


def test_the_prompt_is_that_of_chat_completions(client: openai.OpenAI) -> None:
    """The same tools and turns give the same calls on both endpoints."""
    call = {"type": "function_call", "call_id": "call_1", "name": "stop", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
    response = ask(client, [user("Weather?"), call, result], tool_choice=NAMED)
    tools = [
        {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
        for tool in TOOLS
    ]
    chat: Any = client.chat.completions.create
    turn = {"id": "call_1", "type": "function", "function": {"name": "stop", "arguments": "{}"}}
    answer = chat(
        model="tiny",
        temperature=0,
        max_tokens=400,
        messages=[
            user("Weather?"),
            {"role": "assistant", "tool_calls": [turn]},
            {"role": "tool", "tool_call_id": "call_1", "content": "done"},
        ],
        tools=tools,
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    )
    (called,) = answer.choices[0].message.tool_calls
    assert response.output[0].arguments == called.function.arguments
    assert response.usage.input_tokens == answer.usage.prompt_tokens


@pytest.mark.parametrize("choice", ["required", NAMED], ids=str)
def test_a_stream_has_the_same_calls(client: openai.OpenAI, choice: Any) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "extra_body": {"seed": 5}}
    whole = ask(client, tool_choice=choice, **options)
    events = list(ask(client, tool_choice=choice, stream=True, **options))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == "response.completed"
    assert len(events[-1].response.output) == len(whole.output)
    for index, call in enumerate(whole.output):
        own = [event for event in events if getattr(event, "output_index", None) == index]
        assert list(dict.fromkeys(event.type for event in own)) == [
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ]
        added, *deltas, arguments, done = own
        assert (added.item.status, added.item.arguments) == ("in_progress", "")
        assert len(deltas) > 1 or call.name == "stop", "arguments come while they are generated"
        assert "".join(event.delta for event in deltas) == call.arguments
        assert (arguments.name, arguments.arguments) == (call.name, call.arguments)
        assert {event.item_id for event in [*deltas, arguments]} == {added.item.id}
        assert done.item == events[-1].response.output[index]
        assert (done.item.name, done.item.arguments) == (call.name, call.arguments)


def test_the_clients_helpers(client: openai.OpenAI) -> None:
    tool: Any = openai.pydantic_function_tool(Weather)
    options: dict[str, Any] = {"tools": [tool], "tool_choice": {"type": "function"}}
    options["tool_choice"]["name"] = "Weather"
    answer = client.responses.parse(model="tiny", input="Hi", temperature=0, **options)
    (call,) = answer.output
    assert call.type == "function_call"
    assert isinstance(call.parsed_arguments, Weather)
    with client.responses.stream(model="tiny", input="Hi", temperature=0, **options) as stream:
        kinds = [event.type for event in stream]
        (streamed,) = stream.get_final_response().output
    assert "response.function_call_arguments.delta" in kinds
    assert streamed.type == "function_call"
    assert streamed.arguments == call.arguments


def test_text_or_calls_as_the_model_likes(client: openai.OpenAI) -> None:
    """A random model writes text, in which nothing is a call."""
    include = {"include": ["message.output_text.logprobs"]}
    answer = ask(client, tool_choice="auto", max_output_tokens=12, **include)
    (message,) = answer.output
    assert (message.type, answer.status) == ("message", "incomplete")
    assert len(message.content[0].logprobs) == 12
    stream = ask(client, tool_choice="auto", max_output_tokens=12, stream=True)
    deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(deltas) == answer.output_text


def test_none_leaves_the_tools_out(client: openai.OpenAI) -> None:
    without = ask(client, tools=[], tool_choice="auto", max_output_tokens=6)
    answer = ask(client, tool_choice="none", max_output_tokens=6)
    assert answer.usage.input_tokens == without.usage.input_tokens
    assert answer.output_text == without.output_text


def test_a_call_that_is_cut_off(client: openai.OpenAI) -> None:
    answer = ask(client, tool_choice=NAMED, max_output_tokens=40)
    (call,) = answer.output
    assert (answer.status, call.status) == ("incomplete", "incomplete")
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(call.arguments)


def test_calls_or_json(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    form = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    answer = ask(client, tool_choice="auto", text=form)
    if answer.output_text:
        assert json.loads(answer.output_text) in ({"a": 1}, {"a": 2})
    else:
        for call in answer.output:
            assert_valid(call)


def test_an_agents_loop(client: openai.OpenAI) -> None:
    """The output goes back as it is, with the results behind it."""
    history: list[Any] = [user("Weather?")]
    for number in range(2):
        answer = ask(client, history, tool_choice=NAMED)
        history += answer.output
        for call in answer.output:
            picture = {"type": "input_image", "image_url": image(3)["image_url"]["url"]}
            pieces = [{"type": "input_text", "text": "blue"}, picture]
            output: Any = '{"sky": "blue"}' if number == 0 else pieces
            item = {"type": "function_call_output", "call_id": call.call_id, "output": output}
            history.append(item)
    extra = {"max_pixels": 16384, "min_pixels": 16384}
    last = ask(client, history, tool_choice="none", max_output_tokens=4, extra_body=extra)
    assert last.output_text
    assert not getattr(last, "warnings", None)
    assert last.usage.input_tokens_details.image_tokens == 16


CALL = {"type": "function_call", "call_id": "call_1", "name": "stop", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}


def test_results_are_told_in_the_order_of_the_calls(client: openai.OpenAI) -> None:
    said = {"role": "assistant", "content": "I stop twice."}
    calls = [CALL, CALL | {"call_id": "call_2"}]
    results = [RESULT, RESULT | {"call_id": "call_2", "output": "y"}]
    texts = {
        ask(
            client, [user("a"), said, *calls, *told], tool_choice="none", max_output_tokens=6
        ).output_text
        for told in (results, results[::-1])
    }
    assert len(texts) == 1


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "no tools of its own"),
    ({"tools": [STOP, {"type": "mcp"}]}, "tools[1].type", "your program"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].function",
     "/v1/chat/completions"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", ""),
    ({"tools": [STOP, STOP]}, "tools[1].name", "another tool has this name"),
    ({"tools": [STOP | {"parameters": {"type": "array"}}]}, "tools[0].parameters", '"object"'),
    ({"tools": [STOP | {"defer_loading": True}]}, "tools[0].defer_loading", "write false"),
    ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "go"}}, "tool_choice",
     "not among the tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice", '"name"'),
    ({"input": [user("a"), RESULT]}, "input[1].type", "must follow"),
    ({"input": [user("a"), CALL]}, "input[1].call_id", "function_call_output"),
    ({"input": [user("a"), CALL, RESULT | {"call_id": "b"}]}, "input[2].call_id", "is none of"),
    ({"input": [user("a"), CALL, RESULT, RESULT]}, "input[3].call_id", "already"),
    ({"input": [user("a"), {"type": "function_call"}]}, "input[1].name", "name"),
    ({"input": [user("a"), CALL | {"call_id": None}]}, "input[1].call_id", "id of the call"),
    ({"input": [user("a"), CALL, {"type": "function_call_output", "call_id": "call_1"}]},
     "input[2].output", "needs output"),
    ({"input": [user("a"), CALL, RESULT | {"output": [{"type": "cat"}]}]},
     "input[2].output[0].type", "is unknown"),
    ({"input": [user("a"), {"type": "web_search_call", "id": "ws_1"}]}, "input[1].type",
     "as the text"),
    ({"input": [user("a"), {"role": "tool", "content": "x"}]}, "input[1].role",
     "function_call_output"),
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
    with nano_server.client() as client:
        picture = {"type": "input_image", "image_url": image(1)["image_url"]["url"]}
        given = [user(picture, {"type": "input_text", "text": "Call."})]
        (call,) = ask(client, given, model="nano", parallel_tool_calls=False).output
        assert_valid(call)
