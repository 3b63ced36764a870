"""Chat completions of a real server process, requested with OpenAI's client."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import openai
import pytest

from tests.server.process import SMALL, Server, ask, data_url, image, png, user


def text_of(stream: Any) -> str:
    return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


def test_answers_have_openais_fields_and_qwinks(client: openai.OpenAI) -> None:
    answer = ask(client, user(image(1), "What is this?"))
    choice = answer.choices[0]
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "tiny"
    assert choice.message.role == "assistant"
    assert isinstance(choice.message.content, str)
    assert choice.finish_reason == "length"
    usage = answer.usage
    assert usage.completion_tokens == 6
    assert usage.prompt_tokens > 16
    assert usage.total_tokens == usage.prompt_tokens + 6
    assert usage.prompt_tokens_details.image_tokens == 16
    timings = answer.timings
    assert timings["total_ms"] >= timings["first_token_ms"] > 0
    assert timings["origins"]["generate"] == "computed"
    assert timings["notes"]


def test_a_stream_gives_the_same_text(client: openai.OpenAI) -> None:
    turn = user(image(2), "What is this?")
    whole = ask(client, turn, max_tokens=20)
    options = {"include_usage": True}
    chunks = list(ask(client, turn, max_tokens=20, stream=True, stream_options=options))
    assert text_of(chunks) == whole.choices[0].message.content
    stages = [chunk.qwink["stage"] for chunk in chunks if hasattr(chunk, "qwink")]
    assert stages == []  # the same prompt needs no pass
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[-2:-1]] == ["length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 20
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0
    assert chunks[-1].timings["origins"]["encode"] == "reused"
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_without_usage_ends_with_the_timings(client: openai.OpenAI) -> None:
    chunks = list(ask(client, user(image(3), "What is this?"), stream=True))
    assert chunks[-1].timings["encode_ms"] > 0
    assert all(chunk.usage is None for chunk in chunks)
    assert [chunk.qwink["stage"] for chunk in chunks[:2]] == ["encode", "prefill"]


def test_the_clients_stream_helper(client: openai.OpenAI) -> None:
    whole = ask(client, user("Hello"), max_tokens=40).choices[0].message.content
    messages, stop = [user("Hello")], whole[4:6]  # the helper raises if finish_reason is "length"
    create: Any = client.chat.completions.stream
    with create(model="tiny", messages=messages, temperature=0, stop=stop) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole[: whole.index(stop)]


async def _ask_twice(server: Server) -> tuple[str, str]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.address}/v1", api_key="none", max_retries=0
    ) as client:
        create: Any = client.chat.completions.create
        fields: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 8}
        whole = create(messages=[user("One")], **fields)
        stream = await create(messages=[user("Two")], stream=True, **fields)
        pieces = [c.choices[0].delta.content or "" async for c in stream]
        return (await whole).choices[0].message.content, "".join(pieces)


def test_async_client(server: Server, client: openai.OpenAI) -> None:
    one, two = asyncio.run(_ask_twice(server))
    assert one == ask(client, user("One"), max_tokens=8).choices[0].message.content
    assert two == ask(client, user("Two"), max_tokens=8).choices[0].message.content


def test_several_images_in_several_turns(client: openai.OpenAI) -> None:
    answer = ask(
        client,
        {"role": "developer", "content": "Be brief."},
        user(image(1), image(2), "What changed?"),
        {"role": "assistant", "content": "Everything."},
        user("And here?", image(3)),
    )
    assert answer.usage.prompt_tokens_details.image_tokens == 3 * 16


def test_a_second_turn_costs_only_its_new_tokens(client: openai.OpenAI) -> None:
    # Task auto: the later question must not change the size of the earlier picture.
    first = user(image(4), "Read the text.")
    answer = ask(client, first, extra_body={"min_pixels": None, "max_pixels": None})
    said = answer.choices[0].message
    second = user("Describe it.")
    again = ask(client, first, said, second, extra_body={"min_pixels": None, "max_pixels": None})
    known = answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert again.timings["encode_ms"] == 0
    # PyTorch's engine starts anew behind the picture, so that the cuts stay the same.
    pictures = answer.usage.prompt_tokens_details.image_tokens
    assert again.usage.prompt_tokens_details.cached_tokens >= pictures
    assert again.usage.prompt_tokens_details.cached_tokens <= known


def test_a_b_a(client: openai.OpenAI) -> None:
    a, b = user(image(5), "What is it?"), user(image(6), "What is it?")
    answers = [ask(client, turn, max_tokens=16) for turn in (a, b, a)]
    texts = [answer.choices[0].message.content for answer in answers]
    assert texts[0] == texts[2] != texts[1]
    cached = [answer.usage.prompt_tokens_details.cached_tokens for answer in answers]
    assert cached[1] < 16 < cached[2]


def test_warm_prompts_are_cached_at_start(client: openai.OpenAI) -> None:
    answer = ask(client, {"role": "system", "content": "Be brief."}, user("Which day is it?"))
    assert answer.usage.prompt_tokens_details.cached_tokens >= 8


def test_sampling(client: openai.OpenAI) -> None:
    options = {"top_k": 50, "min_p": 0.01, "repetition_penalty": 1.1}
    drawn = [
        ask(
            client,
            user("Hello"),
            temperature=1.0,
            top_p=0.95,
            seed=seed,
            presence_penalty=0.1,
            frequency_penalty=0.1,
            max_tokens=24,
            extra_body=options,
        )
        for seed in (7, 7, 8)
    ]
    texts = [answer.choices[0].message.content for answer in drawn]
    assert texts[0] == texts[1] != texts[2]


def test_stop(client: openai.OpenAI) -> None:
    whole = ask(client, user("Hello"), max_tokens=40).choices[0].message.content
    stop = whole[4:6]
    answer = ask(client, user("Hello"), max_tokens=40, stop=[stop])
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == whole[: whole.index(stop)]
    assert (
        ask(client, user("Hello"), max_tokens=None, max_completion_tokens=3).usage.completion_tokens
        == 3
    )


def test_logprobs(client: openai.OpenAI) -> None:
    turn = user(image(1), "Hello")
    whole = ask(client, turn, logprobs=True, top_logprobs=3).choices[0]
    tokens = whole.logprobs.content
    assert len(tokens) == 6
    assert all(len(token.top_logprobs) == 3 for token in tokens)
    assert all(token.logprob == token.top_logprobs[0].logprob <= 0 for token in tokens)
    spelt = b"".join(bytes(token.bytes) for token in tokens)
    assert spelt.decode(errors="replace") == whole.message.content
    chunks = list(ask(client, turn, logprobs=True, stream=True))
    streamed = [t for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert [token.bytes for token in streamed] == [token.bytes for token in tokens]
    assert streamed[0].top_logprobs == []
    assert ask(client, turn).choices[0].logprobs is None


def test_detail_and_task_decide_the_size(client: openai.OpenAI) -> None:
    free = {"min_pixels": None, "max_pixels": None}

    def tokens(extra: dict[str, Any], **fields: Any) -> int:
        answer = ask(client, user(image(9, **fields), "?"), max_tokens=1, extra_body=free | extra)
        return int(answer.usage.prompt_tokens_details.image_tokens)

    low, high = tokens({}, detail="low"), tokens({}, detail="high")
    assert low < high
    assert tokens({"task": "describe"}, detail="auto") == low
    assert tokens({"mm_processor_kwargs": SMALL}) == 16


HARMLESS: dict[str, Any] = {
    "user": "me",
    "metadata": {"a": "b"},
    "store": False,
    "n": 1,
    "service_tier": "auto",
    "response_format": {"type": "text"},
    "modalities": ["text"],
}


def test_harmless_fields_are_accepted(client: openai.OpenAI) -> None:
    assert ask(client, user("Hi"), max_tokens=1, tools=None, **HARMLESS).choices


def turn(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def nested(**fields: Any) -> dict[str, Any]:
    return {"mm_processor_kwargs": fields}


BAD: list[tuple[dict[str, Any], int, str | None, str]] = [
    ({"model": "gpt-4o"}, 404, "model", "model_not_found"),
    ({"messages": []}, 400, "messages", "invalid_value"),
    ({"messages": "Hi"}, 400, "messages", "invalid_value"),
    ({"messages": [{"role": "critic", "content": "x"}]}, 400, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user"}]}, 400, "messages[0].content", "missing_field"),
    ({"messages": [turn(None)]}, 400, "messages[0].content", "invalid_value"),
    ({"messages": [user({"type": "x"})]}, 400, "messages[0].content[0].type", "invalid_value"),
    ({"n": 9}, 400, "n", "invalid_value"),
    ({"n": 0}, 400, "n", "invalid_value"),
    ({"store": True}, 400, "store", "invalid_value"),
    ({"tools": [{"type": "web_search"}]}, 400, "tools[0].type", "unsupported_field"),
    ({"tool_choice": "required"}, 400, "tool_choice", "invalid_value"),
    ({"response_format": {"type": "x"}}, 400, "response_format.type", "invalid_value"),
    ({"modalities": ["text", "audio"]}, 400, "modalities", "invalid_value"),
    ({"audio": {"voice": "x"}}, 400, "audio", "unsupported_field"),
    ({"logit_bias": {"1": 2}}, 400, "logit_bias", "unsupported_field"),
    ({"reasoning_effort": "high"}, 400, "reasoning_effort", "unsupported_field"),
    ({"temperature": "0"}, 400, "temperature", "invalid_value"),
    ({"temperature": 2.1}, 400, "temperature", "invalid_value"),
    ({"top_p": 0}, 400, "top_p", "invalid_value"),
    ({"top_k": -2}, 400, "top_k", "invalid_value"),
    ({"max_tokens": 0}, 400, "max_tokens", "invalid_value"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, 400, "max_tokens", "invalid_value"),
    ({"top_logprobs": 2}, 400, "top_logprobs", "invalid_value"),
    ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs", "invalid_value"),
    ({"seed": 1.5}, 400, "seed", "invalid_value"),
    ({"task": "sing"}, 400, "task", "invalid_value"),
    ({"min_pixels": 5}, 400, "min_pixels", "invalid_value"),
    ({"max_pixels": 4096} | nested(max_pixels=8192), 400, "max_pixels", "invalid_value"),
    ({"messages": [user("long " * 6000)]}, 400, None, "context_length_exceeded"),
]  # fmt: skip

IMAGES: list[tuple[str, str]] = [
    ("file:///etc/passwd", "invalid_value"),
    ("/etc/passwd", "invalid_value"),
    ("data:image/png;base64,!", "invalid_image"),
    ("data:image/png", "invalid_image"),
    ("data:text/plain,hello", "invalid_image"),
    (data_url(png(1)[:2000]), "invalid_image"),
    ("http://127.0.0.1:9/a.png", "url_not_allowed"),
    ("https://example.com/a.png", "url_not_allowed"),
    (f"qwink:sha256:{'0' * 64}", "image_not_found"),
    ("qwink:nonsense", "image_not_found"),
]


def post(server: Server, **fields: Any) -> httpx.Response:
    body = {"model": "tiny", "messages": [user("Hi")], "max_tokens": 2} | fields
    return server.http.post(f"{server.address}/v1/chat/completions", json=body, timeout=30)


@pytest.mark.parametrize(("fields", "status", "param", "code"), BAD, ids=lambda v: str(v)[:40])
def test_refusals_name_the_field(
    server: Server, fields: dict[str, Any], status: int, param: str | None, code: str
) -> None:
    for stream in ({}, {"stream": True}):
        response = post(server, **fields | stream)
        error = response.json()["error"]
        assert (response.status_code, error["param"], error["code"]) == (status, param, code)
        assert error["type"] == "invalid_request_error"
        assert param is None or param in error["message"]


@pytest.mark.parametrize(("url", "code"), IMAGES, ids=lambda v: v[:24])
def test_refused_images_are_named(server: Server, url: str, code: str) -> None:
    bad = {"type": "image_url", "image_url": {"url": url}}
    response = post(server, messages=[user("a", image(1)), user(image(2), bad, "b")], **SMALL)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, code)
    assert error["param"] == "messages[1].content[1].image_url.url"
    assert "passwd" not in response.text


def test_the_client_raises_matching_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="only tools of type function"):
        ask(client, user("Hi"), tools=[{"type": "custom", "custom": {"name": "f"}}])
    with pytest.raises(openai.NotFoundError, match="this server has tiny"):
        ask(client, user("Hi"), model="gpt-4o")


def test_bodies_that_are_not_valid_json(server: Server) -> None:
    url = f"{server.address}/v1/chat/completions"
    kind = {"Content-Type": "application/json"}
    for body in (b"", b"{", b"[]", b"\xff", b'{"model": "\\ud800"}', b"[" * 100_000, b"NaN"):
        response = server.http.post(url, content=body, headers=kind)
        assert response.status_code == 400, body[:20]
    assert server.http.post(url, content=b"{}").status_code == 415
    assert server.http.get(url).status_code == 405
    assert server.http.get(f"{server.address}/nothing").json()["error"]["code"] == "not_found"


def test_request_ids(server: Server, client: openai.OpenAI) -> None:
    given = ask(client, user("Hi"), extra_headers={"X-Request-ID": "mine-1"})
    assert given._request_id == "mine-1"
    bad = server.http.get(f"{server.address}/health", headers={"X-Request-ID": "no spaces allowed"})
    assert bad.headers["x-request-id"].startswith("req-")
    server.wait_until(lambda: any(r["request_id"] == "mine-1" for r in server.requests()))
    line = next(r for r in server.requests() if r["request_id"] == "mine-1")
    assert line["route"] == "/v1/chat/completions"
    assert line["status"] == 200
    assert line["timings"]["total_ms"] > 0
    assert line["completion_tokens"] == 6


def test_logs_hold_no_payloads(server: Server, client: openai.OpenAI) -> None:
    said = ask(client, user("unmistakable question")).choices[0].message.content
    with pytest.raises(openai.BadRequestError):
        ask(client, user("unmistakable question"), extra_body={"task": "unmistakable"})
    ask(client, user("Hi"), extra_body={"seen by name": 1, "surprise": "unmistakable"})
    time.sleep(0.1)
    assert "unmistakable" not in server.log
    assert json.dumps(said, ensure_ascii=False) not in server.log


def test_metrics_move(server: Server, client: openai.OpenAI) -> None:
    names = (
        'qwink_requests_total{route="/v1/chat/completions",status="200"}',
        'qwink_stage_seconds_count{stage="encode"}',
        "qwink_first_token_seconds_count",
        "qwink_tokens_per_second_count",
        "qwink_generated_tokens_total",
        'qwink_cache_hits_total{cache="prefixes"}',
        'qwink_cache_hits_total{cache="embeddings"}',
        'qwink_cache_bytes{cache="embeddings"}',
    )
    before = [server.metric(name) for name in names]
    for turns in ((), ({"role": "system", "content": "Think."},), ()):
        ask(client, *turns, user(image(77), "Hi"))
    after = [server.metric(name) for name in names]
    assert all(now > then for now, then in zip(after, before, strict=True)), (before, after)
    assert server.metric('qwink_stage_seconds_count{stage="encode"}') == before[1] + 1


def test_models_and_pages(server: Server, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    page = server.http.get(f"{server.address}/docs").text
    assert "/v1/chat/completions" in page
    assert "http://" not in page
    assert "https://" not in page
    schema = server.http.get(f"{server.address}/openapi.json").json()
    assert "ChatRequest" in schema["components"]["schemas"]
    assert server.http.get(server.address, follow_redirects=True).status_code == 200
