"""Several answers to one request: `n`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import httpx
import openai
import pytest

from tests.server.process import SMALL, Serve, Server, ask, image, user

DRAWN: dict[str, Any] = {"temperature": 1.5, "seed": 7, "max_tokens": 8}


def texts(answer: Any) -> list[str]:
    return [choice.message.content for choice in answer.choices]


def test_choices_differ_and_are_reproducible(client: openai.OpenAI) -> None:
    turn = user(image(11), "What is this?")
    answer = ask(client, turn, n=4, **DRAWN)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len(set(texts(answer))) > 1
    assert texts(ask(client, turn, n=4, **DRAWN)) == texts(answer)
    for index in (0, 3):  # choice i is the answer to seed + i
        alone = ask(client, turn, **DRAWN | {"seed": 7 + index})
        assert texts(alone) == [texts(answer)[index]]


def test_the_prompt_is_computed_and_counted_once(server: Server, client: openai.OpenAI) -> None:
    turn = user(image(12), "What is this thing, please?")
    cached = server.metric('qwink_answer_tokens_total{kind="cached"}')
    answer = ask(client, turn, n=8, **DRAWN)
    usage = answer.usage
    assert len(answer.choices) == 8
    assert usage.completion_tokens == 8 * 8
    assert usage.prompt_tokens_details.image_tokens == 16
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    reused = server.metric('qwink_answer_tokens_total{kind="cached"}') - cached
    assert reused >= 7 * (usage.prompt_tokens - 1), "seven of eight reuse the prompt"


def test_a_stream_has_all_choices(client: openai.OpenAI) -> None:
    turn = user(image(13), "What is this?")
    whole = ask(client, turn, n=3, logprobs=True, **DRAWN)
    options = {"include_usage": True}
    chunks = list(
        ask(client, turn, n=3, logprobs=True, stream=True, stream_options=options, **DRAWN)
    )
    pieces: dict[int, list[str]] = defaultdict(list)
    roles: list[int] = []
    reasons: dict[int, str] = {}
    num_logprobs: dict[int, int] = defaultdict(int)
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        assert choice.index not in reasons, "nothing follows the finish reason"
        pieces[choice.index].append(choice.delta.content or "")
        if choice.delta.role:
            roles.append(choice.index)
        if choice.finish_reason:
            reasons[choice.index] = choice.finish_reason
        num_logprobs[choice.index] += len(choice.logprobs.content) if choice.logprobs else 0
    assert ["".join(pieces[index]) for index in range(3)] == texts(whole)
    assert sorted(roles) == [0, 1, 2]
    assert [reasons[choice.index] for choice in whole.choices] == [
        choice.finish_reason for choice in whole.choices
    ]
    assert [num_logprobs[choice.index] for choice in whole.choices] == [
        len(choice.logprobs.content) for choice in whole.choices
    ]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].timings["total_ms"] > 0


def test_greedy_choices_are_equal_and_say_so(client: openai.OpenAI) -> None:
    answer = ask(client, user("Hello"), n=2)
    assert texts(answer)[0] == texts(answer)[1]
    (warning,) = answer.warnings
    assert warning.startswith("the answers are greedy, so all choices are equal")
    assert not hasattr(ask(client, user("Hello"), n=2, **DRAWN), "warnings")


def test_a_warning_about_one_choice_names_it(nano_server: Server) -> None:
    body = {"model": "nano", "messages": [user("Hello")], "n": 2, "temperature": 0, "bogus": 1}
    answer = nano_server.http.post(f"{nano_server.address}/v1/chat/completions", json=body).json()
    assert "the unknown field bogus was ignored" in answer["warnings"]
    assert not any(warning.startswith("choice") for warning in answer["warnings"])


def test_choices_count_against_the_limits(serve: Serve) -> None:
    """Two run and one waits, so that four answers are too many for ever."""
    server = serve("--max-running", 2, "--max-waiting", 1).wait_ready()

    def post(n: int, **fields: Any) -> httpx.Response:
        body = {"model": "tiny", "messages": [user("Hi there")], "n": n, "max_tokens": 4, **SMALL}
        url = f"{server.address}/v1/chat/completions"
        return server.http.post(url, json=body | fields)

    error = post(4).json()["error"]
    assert (error["param"], error["code"]) == ("n", "invalid_value")
    assert "runs and queues 3 answers" in error["message"]
    assert len(post(3).json()["choices"]) == 3, "the third waits for a slot"
    with server.client() as client:
        stream = ask(client, user("Long"), n=2, stream=True, max_tokens=200, temperature=1)
        next(iter(stream))
        assert server.metric("qwink_active ") == 2
        assert post(3).status_code == 429
        stream.close()
    server.wait_until(lambda: server.metric("qwink_active ") == 0)
    server.wait_until(lambda: server.metric("qwink_running ") == 0)
    logged = [line["completion_tokens"] for line in server.requests() if "timings" in line]
    assert logged[0] == 3 * 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_all_choices(server: Server, stream: bool) -> None:
    body = {"messages": [user("Hi")], "n": 4, "max_tokens": 500, "temperature": 1, "stream": stream}
    with server.send(**body):
        server.wait_until(lambda: server.metric("qwink_running ") == 4)
    server.wait_until(lambda: server.metric("qwink_running ") == 0)
    server.wait_until(lambda: server.metric("qwink_active ") == 0)
