"""OpenAI's dialect: what asks for nothing passes, the rest is understood or refused with advice."""

from __future__ import annotations

import base64
import gzip
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import openai
import pytest
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params

from qwink.server.response_schema import RESPONSE_UNSUPPORTED, ResponseRequest
from qwink.server.schema import CHAT_UNSUPPORTED, ChatRequest
from tests.server.process import SMALL, Serve, Server, ask, data_url, image, png, starter, user

CLIENTS = Path(__file__).parent / "clients"


@pytest.fixture(scope="module")
def server(
    tiny_checkpoint: tuple[Path, Any], tiny_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    servers = starter(tiny_checkpoint[0], tiny_home, tmp_path_factory.mktemp("dialect"))
    yield next(servers)("--max-body-mb", 1).wait_ready()
    next(servers, None)


def post(server: Server, path: str = "/v1/chat/completions", /, **fields: Any) -> httpx.Response:
    body: dict[str, Any] = {"model": "tiny", "temperature": 0} | SMALL
    if "responses" in path:
        body |= {"input": "Hi", "max_output_tokens": 3}
    else:
        body |= {"messages": [user("Hi")], "max_tokens": 3}
    return server.http.post(server.address + path, json=body | fields)


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


def refused(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


NOTHING: list[dict[str, Any]] = [
    {"tools": []},
    {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
    {"tool_choice": "none"},
    {"tool_choice": "auto"},
    {"parallel_tool_calls": False},
    {"functions": [], "function_call": "none"},
    {"logit_bias": {}},
    {"logit_bias": {"50": 0}},
    {"reasoning_effort": "none"},
    {"reasoning_effort": "minimal"},
    {"verbosity": "medium"},
    {"n": 1.0},
    {"response_format": {"type": "text"}},
    {"modalities": ["text"], "audio": None},
    {"store": False, "metadata": {}},
    {"service_tier": "auto"},
    {"service_tier": "flex"},
    {"prediction": None},
    {"prediction": {"type": "content", "content": ""}},
    {"stream_options": None},
    {"stream_options": {}},
    {"stream_options": {"include_usage": True}, "stream": False},
    {"stream_options": {"include_obfuscation": False}},
    {"prompt_cache_retention": "in_memory", "prompt_cache_options": {"mode": "implicit"}},
    {"stop": []},
    {"logprobs": False, "top_logprobs": 0},
    {"user": "me", "safety_identifier": "x", "prompt_cache_key": "y"},
    {"web_search_options": None, "moderation": None},
    {"chat_template_kwargs": None, "guided_json": None},
    {"max_tokens": 3.0, "seed": 1.0, "top_k": 40.0, "max_pixels": 16384.0},
]


@pytest.mark.parametrize("fields", NOTHING, ids=lambda fields: str(fields)[:50])
def test_what_asks_for_nothing_passes(server: Server, fields: dict[str, Any]) -> None:
    answer = post(server, **fields)
    assert text_of(answer) == text_of(post(server))
    assert "warnings" not in answer.json()


ADVICE: list[tuple[dict[str, Any], str, str]] = [
    ({"tool_choice": {"type": "function"}}, "tool_choice", '"required"'),
    ({"functions": [{"name": "f"}]}, "functions", "write tools"),
    ({"logit_bias": {"5": 1}}, "logit_bias", "write {}"),
    ({"reasoning_effort": "high"}, "reasoning_effort", 'write "none"'),
    ({"verbosity": "low"}, "verbosity", "how long the answer should be"),
    ({"n": 9}, "n", "less than or equal to 8"),
    ({"n": True}, "n", "valid integer"),
    ({"store": True}, "store", "write false"),
    ({"service_tier": "priority"}, "service_tier", "'flex'"),
    ({"response_format": {"type": "yaml"}}, "response_format.type", '"json_object"'),
    ({"modalities": ["audio"]}, "modalities", 'write ["text"]'),
    ({"audio": {"voice": "x", "format": "wav"}}, "audio", "answers are text"),
    ({"web_search_options": {}}, "web_search_options", "does not search the web"),
    ({"moderation": {"model": "x"}}, "moderation", "leave it out"),
    ({"prompt_cache_retention": "24h"}, "prompt_cache_retention", '"in_memory"'),
    ({"prompt_cache_options": {"mode": "explicit"}}, "prompt_cache_options", "implicit"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation",
     "write false"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "advice"), ADVICE, ids=lambda v: str(v)[:40])
def test_what_is_not_supported_says_what_to_write(
    server: Server, fields: dict[str, Any], param: str, advice: str
) -> None:
    response = post(server, **fields)
    assert refused(response)[0] == 400
    assert refused(response)[2] == param
    assert advice in response.json()["error"]["message"]


def test_all_of_openais_fields_are_known() -> None:
    base: Any = chat_params.CompletionCreateParamsBase
    chat = set(base.__annotations__) | {"stream"}
    assert chat <= ChatRequest.model_fields.keys() | CHAT_UNSUPPORTED.keys()
    newer: Any = response_create_params.ResponseCreateParamsBase
    responses = set(newer.__annotations__) | {"stream"}
    assert responses <= ResponseRequest.model_fields.keys() | RESPONSE_UNSUPPORTED.keys()


UNKNOWN: list[tuple[dict[str, Any], str]] = [
    ({"surprise": 1}, "surprise"),
    ({"max_token": 5}, "max_token"),
    ({"messages": [{"role": "user", "content": "Hi", "extra": 1}]}, "messages[0].extra"),
    ({"messages": [user({"type": "text", "text": "Hi", "cache_control": {}})]},
     "messages[0].content[0].cache_control"),
    ({"stream_options": {"other": 1}}, "stream_options.other"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "name"), UNKNOWN, ids=lambda v: str(v)[:40])
def test_unknown_fields_are_ignored_with_a_warning(
    server: Server, fields: dict[str, Any], name: str
) -> None:
    answer = post(server, **fields)
    assert text_of(answer) == text_of(post(server))
    hint = "; did you mean max_tokens?" if name == "max_token" else ""
    assert answer.json()["warnings"] == [f"the unknown field {name} was ignored{hint}"]
    request_id = answer.headers["x-request-id"]
    server.wait_until(lambda: any(r["request_id"] == request_id for r in server.requests()))
    line = next(r for r in server.requests() if r["request_id"] == request_id)
    assert line["ignored"] == [name]


def test_warnings_come_with_a_streams_last_chunk(server: Server) -> None:
    with server.client() as client:
        for options in ({}, {"stream_options": {"include_usage": True}}):
            extra: dict[str, Any] = {"surprise": 1}
            chunks = list(ask(client, user("Hi"), stream=True, extra_body=extra, **options))
            assert chunks[-1].warnings == ["the unknown field surprise was ignored"]
            assert not any(hasattr(chunk, "warnings") for chunk in chunks[:-1])


def test_names_that_hold_data_are_not_repeated(server: Server) -> None:
    answer = post(server, **{"my secret is 42": 1})
    assert "secret" not in answer.text
    many = post(server, **{f"field{number}": 1 for number in range(99)})
    assert len(many.json()["warnings"]) == 17
    assert "83 more" in many.json()["warnings"][-1]
    time.sleep(0.1)
    assert "secret" not in server.log


def test_strict_refuses_unknown_fields(serve: Serve) -> None:
    server = serve("--strict").wait_ready()
    assert refused(post(server, surprise=1)) == (400, "unknown_field", "surprise")
    assert refused(post(server, surprise=None)) == (400, "unknown_field", "surprise")
    assert refused(post(server, messages=UNKNOWN[2][0]["messages"]))[2] == "messages[0].extra"
    assert text_of(post(server, **NOTHING[0])) == text_of(post(server))
    by_environment = serve(QWINK_STRICT="1").wait_ready()
    assert refused(post(by_environment, surprise=1))[1] == "unknown_field"


def test_refused_requests_are_logged_with_code_and_param(server: Server) -> None:
    wrong = [
        post(server, temperature=9),
        post(server, model="gpt-4o"),
        server.http.get(f"{server.address}/nothing"),
        server.http.get(f"{server.address}/health", headers={"Host": "evil.example"}),
    ]
    wanted = [
        ("invalid_value", "temperature"),
        ("model_not_found", "model"),
        ("not_found", None),
        ("host_not_allowed", None),
    ]
    ids = [response.headers["x-request-id"] for response in wrong]
    server.wait_until(lambda: set(ids) <= {line["request_id"] for line in server.requests()})
    lines = {line["request_id"]: line for line in server.requests()}
    assert [(lines[name]["code"], lines[name].get("param")) for name in ids] == wanted


# Messages


def test_names_and_empty_assistant_turns_pass(server: Server) -> None:
    named = post(server, messages=[user("Hi") | {"name": "Ann"}])
    assert text_of(named) == text_of(post(server))
    assert "names of turns" in named.json()["warnings"][0]
    absent: list[dict[str, Any]] = [
        {"content": None},
        {},
        {"content": "", "tool_calls": []},
        {"content": []},
    ]
    for fields in absent:
        turns = [user("Hi"), {"role": "assistant", **fields}]
        assert text_of(post(server, messages=turns)) == text_of(post(server))
        assert text_of(post(server, messages=[*turns, user("Go on")]))
    said = {"role": "assistant", "content": None, "refusal": "No."}
    same = {"role": "assistant", "content": "No."}
    answers = [text_of(post(server, messages=[user("Hi"), t, user("Why?")])) for t in (said, same)]
    assert answers[0] == answers[1]


def test_leading_system_turns_become_one(server: Server) -> None:
    one = [{"role": "system", "content": "Be brief.\n\nBe kind."}, user("Hi")]
    two = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "system", "content": ""},
        user("Hi"),
    ]
    answers = [post(server, messages=turns) for turns in (one, two)]
    assert text_of(answers[0]) == text_of(answers[1])
    tokens = [answer.json()["usage"]["prompt_tokens"] for answer in answers]
    assert tokens[0] == tokens[1]


EMPTY: list[tuple[list[Any], str]] = [
    ([{"role": "user", "content": ""}], "messages[0].content"),
    ([{"role": "user", "content": []}], "messages[0].content"),
    ([{"role": "user", "content": " \n"}], "messages[0].content"),
    ([user("")], "messages[0].content"),
    ([{"role": "system", "content": "Be brief."}], "messages"),
    ([{"role": "assistant", "content": "Hello"}], "messages"),
    ([{"role": "system", "content": "x"}, {"role": "user", "content": ""}], "messages[1].content"),
    ([{"role": "assistant", "content": [image(1)]}, user("x")],
     "messages[0].content[0].image_url.url"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "param"), EMPTY, ids=lambda v: str(v)[:50])
def test_turns_that_ask_nothing_are_refused(
    server: Server, messages: list[Any], param: str
) -> None:
    assert refused(post(server, messages=messages)) == (400, "invalid_value", param)


def test_pictures_in_other_spellings(server: Server) -> None:
    url = data_url(png(5))
    usual = text_of(post(server, messages=[user(image(5), "What?")]))
    for part in (
        {"type": "image_url", "image_url": url},
        {"type": "input_image", "image_url": url},
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "image_url", "image_url": {"url": url, "detail": "original"}},
    ):
        turn = user(part, {"type": "input_text", "text": "What?"})
        assert text_of(post(server, messages=[turn])) == usual
    plain = {"type": "image_url", "image_url": "/etc/passwd"}
    assert refused(post(server, messages=[user(plain)]))[2] == "messages[0].content[0].image_url"


@pytest.mark.parametrize(
    ("part", "field", "advice"),
    [
        ({"type": "image", "source": {"data": "x"}}, "type", '"image_url": {"url"'),
        ({"type": "image", "image": "x"}, "type", '"image_url": {"url"'),
        ({"type": "input_audio", "input_audio": {}}, "type", "sound"),
        ({"type": "file", "file": {}}, "", "needs file_data"),
        ({"type": "video_url", "video_url": {}}, "", "needs a video"),
        ({"text": "x"}, "type", '"type": "text"'),
        ({"type": "text"}, "text", "needs the field text"),
        ({"type": "input_image", "file_id": "file-1"}, "file_id", "/v1/images"),
        ({"type": "image_url"}, "", "needs image_url"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_other_parts_say_how_to_write_them(
    server: Server, part: dict[str, Any], field: str, advice: str
) -> None:
    response = post(server, messages=[user("x"), user(part)])
    param = f"messages[1].content[0]{'.' if field else ''}{field}"
    assert refused(response)[::2] == (400, param)
    assert advice in response.json()["error"]["message"]


# Continuation


def test_a_last_assistant_turn_is_continued(server: Server) -> None:
    whole = post(server, max_tokens=12)
    text = text_of(whole)
    for cut in (2, 5):
        begun = {"role": "assistant", "content": text[:cut]}
        answer = post(server, messages=[user("Hi"), begun], max_tokens=12)
        usage = answer.json()["usage"]
        # The prompt is longer by the tokens of the text only: no new turn is begun.
        assert 1 <= usage["prompt_tokens"] - whole.json()["usage"]["prompt_tokens"] <= cut
        same = post(
            server, messages=[user("Hi"), begun], max_tokens=12, add_generation_prompt=False
        )
        assert text_of(same) == text_of(answer)
        for field in ({"continue_final_message": False}, {"add_generation_prompt": True}):
            new = post(server, messages=[user("Hi"), begun], max_tokens=12, **field)
            assert new.json()["usage"]["prompt_tokens"] > usage["prompt_tokens"]


def test_contradictory_continuations_are_refused(server: Server) -> None:
    turns = [user("Hi"), {"role": "assistant", "content": "x"}]
    both = {"continue_final_message": True, "add_generation_prompt": True}
    assert refused(post(server, messages=turns, **both))[2] == "continue_final_message"
    for field in ({"continue_final_message": True}, {"add_generation_prompt": False}):
        assert refused(post(server, **field))[2] == next(iter(field))


# HTTP


def test_models_by_name(server: Server, serve: Serve) -> None:
    with server.client() as client:
        assert client.models.retrieve("tiny").id == "tiny"
        with pytest.raises(openai.NotFoundError, match="this server has tiny"):
            client.models.retrieve("gpt-4o")
    named = serve("--served-model-name", "Qwen/Qwen3-VL-2B").wait_ready()
    with named.client() as client:
        assert client.models.retrieve("Qwen/Qwen3-VL-2B").id == "Qwen/Qwen3-VL-2B"


@pytest.mark.parametrize(
    "path", ["/", "/health", "/ready", "/metrics", "/docs", "/v1/models", "/v1/models/tiny"]
)
def test_head(server: Server, path: str) -> None:
    answer = server.http.head(server.address + path)
    assert (answer.status_code, answer.content) == (200, b"")


def exchange(server: Server, request: bytes) -> bytes:
    with server.connect() as connection:
        connection.sendall(request)
        pieces = []
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def test_probes_of_http_1_0(server: Server) -> None:
    for method in (b"GET", b"HEAD"):
        answer = exchange(server, method + b" /health HTTP/1.0\r\n\r\n")
        assert answer.split(b"\r\n")[0].endswith(b" 200 OK")
    evil = exchange(server, b"GET /health HTTP/1.0\r\nHost: evil.example\r\n\r\n")
    assert b" 403 " in evil.split(b"\r\n")[0]
    empty = exchange(server, b"GET /health HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n")
    assert b" 403 " in empty.split(b"\r\n")[0]


@pytest.mark.parametrize("base", ["", "/v1/chat/completions", "/chat/completions", "/api"])
def test_wrong_base_urls_name_the_right_one(server: Server, base: str) -> None:
    client = openai.OpenAI(base_url=server.address + base, api_key="none", max_retries=0)
    with client, pytest.raises(openai.NotFoundError, match=f"base URL.* {server.address}/v1,"):
        ask(client, user("Hi"))
    response = server.http.post(server.address, json={})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    other = server.http.get(f"{server.address}/v1/chat/completions")
    assert (other.status_code, other.json()["error"]["code"]) == (405, "method_not_allowed")
    assert "it takes POST" in other.json()["error"]["message"]


def raw_deflate(data: bytes) -> bytes:
    library = zlib.compressobj(wbits=-15)
    return library.compress(data) + library.flush()


PACKED: list[tuple[str, Any]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("GZIP", lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:])),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("identity", bytes),
]


def send(server: Server, encoding: str, content: Any) -> httpx.Response:
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    url = f"{server.address}/v1/chat/completions"
    return server.http.post(url, content=content, headers=headers)


@pytest.mark.parametrize(("encoding", "pack"), PACKED)
def test_packed_bodies(server: Server, encoding: str, pack: Any) -> None:
    fields = {"model": "tiny", "messages": [user(image(5), "What?")], "max_tokens": 3} | SMALL
    body = json.dumps(fields | {"temperature": 0}).encode()
    packed = pack(body)
    assert text_of(send(server, encoding, packed)) == text_of(send(server, "", body))
    pieces = (packed[i : i + 7] for i in range(0, min(len(packed), 700), 7))
    chunked = [*pieces, packed[700:]]
    assert text_of(send(server, encoding, iter(chunked))) == text_of(send(server, "", body))


def test_packed_bodies_are_limited_and_checked(server: Server) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    assert refused(send(server, "gzip", bomb))[:2] == (413, "body_too_large")
    assert refused(send(server, "gzip", b"{}"))[:2] == (400, "invalid_encoding")
    assert refused(send(server, "gzip", gzip.compress(b"{}")[:-3]))[:2] == (400, "invalid_encoding")
    assert refused(send(server, "deflate", b"\xff" * 9))[:2] == (400, "invalid_encoding")
    for encoding in ("br", "zstd", "gzip, br", "compress"):
        response = send(server, encoding, b"xxxx")
        assert refused(response)[:2] == (415, "unsupported_encoding")
        assert "gzip, deflate" in response.json()["error"]["message"]
        assert response.headers["accept-encoding"] == "gzip, deflate"


def spellings(content: bytes) -> dict[str, str]:
    usual = base64.b64encode(content).decode()
    safe = base64.urlsafe_b64encode(content).decode()
    lines = "\n".join(usual[i : i + 76] for i in range(0, len(usual), 76))
    return {
        "unpadded": f"data:image/png;base64,{usual.rstrip('=')}",
        "url-safe": f"data:image/png;base64,{safe}",
        "url-safe unpadded": f"data:image/png;base64,{safe.rstrip('=')}",
        "percent-encoded": f"data:image/png;base64,{quote(usual, safe='')}",
        "lines": f"data:image/png;base64,{lines}\r\n",
        "parameter after": f"data:image/png;base64;charset=utf-8,{usual}",
        "parameter before": f"data:image/png;charset=utf-8;base64,{usual}",
        "parameter with name": f"data:image/png;name=a.png;base64;x=y,{usual}",
        "upper case": f"DATA:IMAGE/PNG;BASE64,{usual}",
        "no type": f"data:;base64,{usual}",
        "other type": f"data:application/octet-stream;base64,{usual}",
        "spaces": f"  data:image/png; base64 ,{usual} ",
        "fragment": f"data:image/png;base64,{usual}#page=1",
        "no base64": f"data:image/png,{quote(content)}",
    }


CONTENT = png(6)


@pytest.mark.parametrize("name", spellings(CONTENT))
def test_data_urls_in_each_spelling(server: Server, name: str) -> None:
    part = {"type": "image_url", "image_url": {"url": spellings(CONTENT)[name]}}
    usual = text_of(post(server, messages=[user(image(6), "What?")]))
    assert text_of(post(server, messages=[user(part, "What?")])) == usual


# Responses


def test_responses(server: Server) -> None:
    with server.client() as client:
        chat = ask(client, {"role": "system", "content": "Be brief."}, user(image(7), "What?"))
        content: Any = [
            {"type": "input_text", "text": "What?"},
            {"type": "input_image", "image_url": data_url(png(7)), "detail": "auto"},
        ]
        create: Any = client.responses.create
        fields: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 6}
        answer = create(
            instructions="Be brief.",
            input=[{"role": "user", "content": content[::-1]}],
            extra_body=SMALL,
            **fields,
        )
        assert answer.output_text == chat.choices[0].message.content
        assert (answer.status, answer.incomplete_details.reason) == (
            "incomplete",
            "max_output_tokens",
        )
        assert answer.usage.input_tokens == chat.usage.prompt_tokens
        assert answer.usage.output_tokens == 6
        assert answer.usage.input_tokens_details.cached_tokens > 0
        assert answer.timings["total_ms"] > 0
        again = create(
            input=[
                {"role": "user", "content": "Hi", "type": "message"},
                *[item.model_dump() for item in answer.output],
                {"role": "user", "content": "And?"},
            ],
            store=False,
            **fields,
        )
        assert again.output_text
        assert not hasattr(again, "warnings")


def test_a_response_that_ends_by_itself(server: Server) -> None:
    whole = post(server, "/v1/responses", max_output_tokens=40).json()
    text = whole["output"][0]["content"][0]["text"]
    done = post(server, "/v1/responses", max_output_tokens=40, stop=text[4:6], surprise=1).json()
    assert done["status"] == done["output"][0]["status"] == "completed"
    assert done["incomplete_details"] is None
    assert done["output"][0]["content"][0]["text"] == text[: text.index(text[4:6])]
    assert done["warnings"] == ["the unknown field surprise was ignored"]


def test_responses_stream_in_openais_order(server: Server) -> None:
    with server.client() as client:
        create: Any = client.responses.create
        fields: dict[str, Any] = {"model": "tiny", "input": "Hi", "temperature": 0}
        whole = create(max_output_tokens=9, **fields)
        include = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        events = list(create(max_output_tokens=9, stream=True, **include, **fields))
        kinds = list(dict.fromkeys(event.type for event in events))
        assert kinds == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        deltas = [event for event in events if event.type == "response.output_text.delta"]
        assert "".join(event.delta for event in deltas) == whole.output_text
        assert sum(len(event.logprobs) for event in deltas) == 9
        assert len(deltas[0].logprobs[0].top_logprobs) == 2
        assert events[-1].response.output_text == whole.output_text
        assert events[-1].response.usage.output_tokens == 9
        with client.responses.stream(
            model="tiny", input="Hi", temperature=0, max_output_tokens=9
        ) as stream:
            assert [event.type for event in stream if event.type == "response.incomplete"]


RESPONSE_NOTHING: dict[str, Any] = {
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "max_tool_calls": 5,
    "reasoning": {"effort": "minimal", "summary": None},
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "truncation": "disabled",
    "background": False,
    "include": ["reasoning.encrypted_content", "file_search_call.results"],
    "metadata": {"a": "b"},
    "store": False,
    "service_tier": "auto",
    "previous_response_id": None,
    "context_management": [],
    "stream_options": {"include_obfuscation": False},
    "max_output_tokens": 3.0,
}


def test_responses_that_ask_for_nothing_pass(server: Server) -> None:
    answer = post(server, "/v1/responses", **RESPONSE_NOTHING)
    assert answer.status_code == 200, answer.text
    assert "warnings" not in answer.json()


@pytest.mark.parametrize(
    ("fields", "param", "advice"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "stores no answers"),
        ({"conversation": "conv_1"}, "conversation", "stores no answers"),
        ({"store": True}, "store", "write false"),
        ({"background": True}, "background", "write false"),
        ({"reasoning": {"effort": "high"}}, "reasoning", '"effort": "none"'),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type", '"json_object"'),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "how long the answer should be"),
        ({"truncation": "auto"}, "truncation", '"disabled"'),
        ({"include": ["message.mood"]}, "include", "leave it out"),
        ({"prompt": {"id": "p"}}, "prompt", "stores no prompts"),
        ({"input": ""}, "input", "empty"),
        ({"input": None}, "input", "missing"),
        ({"input": []}, "input", "at least 1 item"),
        ({"input": [{"type": "reasoning"}]}, "input[0].type", "as the text"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0].type", "earlier turns"),
        ({"input": [{"role": "user", "content": ""}]}, "input[0].content", "empty"),
        ({"input": [user({"type": "input_file", "file_id": "a"})]}, "input[0].content[0].file_id",
         "file_data"),
        ({"input": [user({"type": "input_image", "image_url": "a.png"})]},
         "input[0].content[0].image_url", "data URL"),
        ({"top_logprobs": 3}, "top_logprobs", "include"),
        ({"model": "gpt-4o"}, "model", "this server has tiny"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_responses_refuse_with_advice(
    server: Server, fields: dict[str, Any], param: str, advice: str
) -> None:
    response = post(server, "/v1/responses", **fields)
    assert refused(response)[2] == param
    assert advice in response.json()["error"]["message"]


# Clients


@pytest.mark.parametrize("name", sorted(path.stem for path in CLIENTS.glob("*.json")))
def test_requests_of_known_clients(server: Server, name: str) -> None:
    """Bodies as clients send them; only model, picture and size are ours."""
    recorded = json.loads((CLIENTS / f"{name}.json").read_text())
    text = json.dumps(recorded["body"]).replace("DATA_URL", data_url(png(8)))
    body = json.loads(text) | {"model": "tiny"}
    response = server.http.post(server.address + recorded["path"], json=body)
    assert response.status_code == 200, response.text
