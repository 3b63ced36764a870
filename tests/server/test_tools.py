"""Tools in chat completions, requested with OpenAI's client: a random model, and nano."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import httpx
import openai
import pytest

from tests.server.process import Server, image, user

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 12},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "unit", "days"],
        },
    },
}
STOP: dict[str, Any] = {"type": "function", "function": {"name": "stop"}}
TOOLS = [WEATHER, STOP]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def ask(client: openai.OpenAI, *messages: Any, **options: Any) -> Any:
    defaults: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 400}
    defaults |= {"tools": TOOLS, "tool_choice": "required"}
    return client.chat.completions.create(messages=list(messages), **defaults | options)


def assert_valid(call: Any) -> None:
    """Assert that a call has its function's parameters, and no others."""
    assert call.type == "function"
    assert call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    if call.function.name == "stop":
        assert arguments == {}
        return
    assert call.function.name == "get_weather"
    assert set(arguments) == {"city", "unit", "days"}
    assert len(arguments["city"]) <= 12
    assert arguments["unit"] in ("celsius", "fahrenheit")
    assert 1 <= arguments["days"] <= 9


@pytest.mark.parametrize("seed", range(6))
def test_required_calls_are_valid_whatever_the_weights(client: openai.OpenAI, seed: int) -> None:
    options: dict[str, Any] = {"temperature": 1.2, "seed": seed, "parallel_tool_calls": False}
    choice = ask(client, user("Weather?"), **options).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert_valid(call)


def test_a_named_function_is_called_once(client: openai.OpenAI) -> None:
    for name in ("get_weather", "stop"):
        choice = ask(client, user("Hi"), tool_choice=named(name)).choices[0]
        (call,) = choice.message.tool_calls
        assert call.function.name == name
        assert_valid(call)
        assert choice.finish_reason == "tool_calls"


def test_several_calls(client: openai.OpenAI) -> None:
    """Random models do not stop calling, until there are 16 calls."""
    for seed in range(8):
        choice = ask(client, user("Hi"), tools=[STOP], temperature=2, seed=seed).choices[0]
        calls = choice.message.tool_calls
        assert 1 <= len(calls) <= 16
        assert len({call.id for call in calls}) == len(calls)
        if len(calls) > 1:
            return
    pytest.fail("no answer with several calls")


@pytest.mark.parametrize("choice", ["required", named("get_weather")], ids=str)
def test_a_stream_has_the_same_calls(client: openai.OpenAI, choice: Any) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 5, "tool_choice": choice}
    whole = ask(client, user("Weather?"), **options).choices[0]
    chunks = list(ask(client, user("Weather?"), stream=True, **options))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert [delta.role for delta in deltas if delta.role] == ["assistant"]
    assert not any(delta.content for delta in deltas)
    names: dict[int, str] = {}
    arguments: dict[int, str] = defaultdict(str)
    for delta in deltas:
        for call in delta.tool_calls or ():
            if call.id is not None:
                assert call.index == len(names), "calls come in order"
                assert (call.type, call.function.arguments) == ("function", "")
                names[call.index] = call.function.name
            else:
                assert call.index == len(names) - 1
                assert call.function.name is None
            arguments[call.index] += call.function.arguments
    assert [(names[index], arguments[index]) for index in names] == [
        (call.function.name, call.function.arguments) for call in whole.message.tool_calls
    ]
    pieces = [delta for delta in deltas if delta.tool_calls]
    assert len(pieces) > 3 * len(names), "arguments come while they are generated"
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason == "tool_calls"


def test_the_clients_stream_helper(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.stream
    options: dict[str, Any] = {"tools": [WEATHER], "tool_choice": named("get_weather")}
    events = []
    with create(model="tiny", messages=[user("Hi")], temperature=0, **options) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in events
    assert "tool_calls.function.arguments.done" in events
    assert_valid(final.message.tool_calls[0])


def test_text_or_calls_as_the_model_likes(client: openai.OpenAI) -> None:
    """A random model writes text, in which nothing is a call."""
    choice = ask(client, user("Hi"), tool_choice="auto", max_tokens=12).choices[0]
    assert choice.message.tool_calls is None
    assert choice.message.content
    assert choice.finish_reason == "length"
    stream = ask(client, user("Hi"), tool_choice="auto", max_tokens=12, stream=True)
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(pieces) == choice.message.content


def test_none_leaves_the_tools_out(client: openai.OpenAI) -> None:
    without = ask(client, user("Hi"), tools=None, tool_choice=None, max_tokens=6)
    answer = ask(client, user("Hi"), tool_choice="none", max_tokens=6)
    assert answer.usage.prompt_tokens == without.usage.prompt_tokens
    assert answer.choices[0].message.content == without.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None
    told = ask(client, user("Hi"), max_tokens=6)
    assert told.usage.prompt_tokens > without.usage.prompt_tokens + 100


def test_allowed_tools_may_be_called(client: openai.OpenAI) -> None:
    allowed = {"mode": "required", "tools": [named("stop")]}
    choice: Any = {"type": "allowed_tools", "allowed_tools": allowed}
    answer = ask(client, user("Hi"), tool_choice=choice)
    calls = answer.choices[0].message.tool_calls
    assert {call.function.name for call in calls} == {"stop"}


def test_a_call_that_is_cut_off(client: openai.OpenAI) -> None:
    choice = ask(client, user("Hi"), tool_choice=named("get_weather"), max_tokens=50).choices[0]
    assert choice.finish_reason == "length"
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(call.function.arguments)


def test_several_choices_call_apart(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"n": 3, "temperature": 1.5, "seed": 1}
    answer = ask(client, user("Hi"), tool_choice=named("get_weather"), **options)
    calls = [choice.message.tool_calls[0] for choice in answer.choices]
    for call in calls:
        assert_valid(call)
    assert len({call.function.arguments for call in calls}) > 1


def test_calls_or_json(client: openai.OpenAI) -> None:
    """LangChain's agents send tools and the form of the last answer together."""
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    message = ask(client, user("Hi"), tool_choice="auto", response_format=form).choices[0].message
    if message.tool_calls is None:
        assert json.loads(message.content) in ({"a": 1}, {"a": 2})
    else:
        for call in message.tool_calls:
            assert_valid(call)


def test_logprobs_are_those_of_all_tokens(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"tool_choice": named("stop"), "logprobs": True}
    whole = ask(client, user("Hi"), **options).choices[0].logprobs.content
    text = "".join(token.token for token in whole)
    assert text == '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    stream = ask(client, user("Hi"), stream=True, **options)
    choices = [chunk.choices[0] for chunk in stream]
    streamed = [token for one in choices if one.logprobs for token in one.logprobs.content]
    assert [token.token for token in streamed] == [token.token for token in whole]


# Turns with calls and results


CALL = {"id": "call_1", "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}  # fmt: skip
OTHER = CALL | {"id": "call_2"}


def turns(*calls: Any, results: list[str]) -> list[Any]:
    told = [{"role": "tool", "tool_call_id": name, "content": f"of {name}"} for name in results]
    return [user("Weather?"), {"role": "assistant", "tool_calls": list(calls)}, *told]


def test_an_agents_loop(client: openai.OpenAI) -> None:
    messages: list[Any] = [user("Weather?")]
    for _ in range(2):
        message = ask(client, *messages, tool_choice=named("get_weather")).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = {"role": "tool", "tool_call_id": call.id, "content": '{"sky": "blue"}'}
            messages.append(result)
    last = ask(client, *messages, tool_choice="none", max_tokens=4)
    assert last.choices[0].message.content
    assert not hasattr(last, "warnings") or last.warnings == []
    repeated = ask(client, *messages, tool_choice="none", max_tokens=4)
    assert repeated.usage.prompt_tokens_details.cached_tokens > 0


def test_results_are_told_in_the_order_of_the_calls(client: openai.OpenAI) -> None:
    def tokens(results: list[str]) -> tuple[str, int]:
        answer = ask(client, *turns(CALL, OTHER, results=results), tool_choice="none", max_tokens=6)
        return answer.choices[0].message.content, answer.usage.prompt_tokens

    assert tokens(["call_1", "call_2"]) == tokens(["call_2", "call_1"])


def test_a_result_may_be_a_picture(client: openai.OpenAI) -> None:
    messages = turns(CALL, results=["call_1"])
    messages[-1]["content"] = [image(3), {"type": "text", "text": "the sky"}]
    extra = {"min_pixels": 16384, "max_pixels": 16384}
    answer = ask(client, *messages, tool_choice="none", max_tokens=2, extra_body=extra)
    assert answer.usage.prompt_tokens_details.image_tokens == 16


RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "only tools of type function"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", ""),
    ({"tools": [STOP, STOP]}, "tools[1].function.name", "another tool has this name"),
    ({"tools": [STOP] * 129}, "tools", "128"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}]},
     "tools[0].function.parameters", '"object"'),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": True,
      "parameters": {"type": "object", "properties": {"a": {"type": "nothing"}}}}}]},
     "tools", ""),
    ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
    ({"tool_choice": named("stop")}, "tool_choice", "there are no tools"),
    ({"tools": TOOLS, "tool_choice": named("go")}, "tool_choice", "not among the tools"),
    ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice", '"required"'),
    ({"tools": TOOLS, "guided_regex": "a+"}, "guided_regex", "can have JSON only"),
    ({"functions": [{"name": "f"}]}, "functions", "write tools"),
    ({"function_call": {"name": "f"}}, "function_call", "write tools"),
    ({"messages": [user("a"), RESULT]}, "messages[1].role", "must follow"),
    ({"messages": turns(CALL, results=[])}, "messages[1].tool_calls[0]", "has no result"),
    ({"messages": turns(CALL, results=["call_3"])}, "messages[2].tool_call_id", "is none of"),
    ({"messages": turns(CALL, results=["call_1"] * 2)}, "messages[3].tool_call_id", "already"),
    ({"messages": [user("a"), {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id",
     "needs the id"),
    ({"messages": [user("a") | {"tool_calls": [CALL]}]}, "messages[0].tool_calls", "assistant"),
    ({"messages": [user("a"), {"role": "function", "name": "f", "content": "x"}]},
     "messages[1].role", "write role tool"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "words"), BAD, ids=lambda value: str(value)[:40])
def test_refusals_name_the_field(
    server: Server, fields: dict[str, Any], param: str, words: str
) -> None:
    body = {"model": "tiny", "messages": [user("Hi")], "max_tokens": 2} | fields
    response = server.http.post(f"{server.address}/v1/chat/completions", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert words in error["message"]


# nano, whose tokenizer has no tokens for the marks


def test_nano_calls_tools(nano_server: Server) -> None:
    with nano_server.client() as client:
        options: dict[str, Any] = {"model": "nano", "parallel_tool_calls": False}
        choice = ask(client, user(image(1), "Call."), **options).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert_valid(choice.message.tool_calls[0])
        auto = ask(client, user(image(1), "What does it say?"), tool_choice="auto", model="nano")
        assert auto.choices[0].message.content


# What frameworks send


def post(server: Server, body: dict[str, Any]) -> dict[str, Any]:
    response: httpx.Response = server.http.post(f"{server.address}/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def test_langchains_structured_output_by_a_function(server: Server) -> None:
    """`with_structured_output(..., method="function_calling")` of langchain-openai."""
    function = {"name": "Receipt", "description": "A receipt.", "parameters": {
        "properties": {"total": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["total"], "type": "object"}}  # fmt: skip
    body = {
        "messages": [{"content": "Read it", "role": "user"}],
        "model": "tiny",
        "parallel_tool_calls": False,
        "stream": False,
        "tool_choice": {"type": "function", "function": {"name": "Receipt"}},
        "tools": [{"type": "function", "function": function}],
    }
    (call,) = post(server, body)["choices"][0]["message"]["tool_calls"]
    assert 0 <= json.loads(call["function"]["arguments"])["total"] <= 99


def test_instructors_default_mode(server: Server) -> None:
    """Mode TOOLS of instructor, with pydantic's schema of a nested model."""
    item = {"properties": {"name": {"maxLength": 5, "title": "Name", "type": "string"}},
            "required": ["name"], "title": "Item", "type": "object"}  # fmt: skip
    parameters = {
        "$defs": {"Item": item},
        "properties": {"items": {"items": {"$ref": "#/$defs/Item"}, "maxItems": 2,
                                 "title": "Items", "type": "array"}},
        "required": ["items"],
        "type": "object",
    }  # fmt: skip
    function = {"name": "Invoice", "description": "Correctly extracted `Invoice`.",
                "parameters": parameters}  # fmt: skip
    body = {
        "messages": [{"role": "user", "content": "Extract"}],
        "model": "tiny",
        "temperature": 0,
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "Invoice"}},
    }
    (call,) = post(server, body)["choices"][0]["message"]["tool_calls"]
    items = json.loads(call["function"]["arguments"])["items"]
    assert len(items) <= 2
    assert all(len(one["name"]) <= 5 for one in items)
