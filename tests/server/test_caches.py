"""Answers are the same to the last bit with empty and with filled caches, over HTTP."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.server.process import Serve, ask, image, user

SHARED = "A long question that several turns have in common, word for word: "


def answers(client: openai.OpenAI, turns: list[tuple[Any, ...]]) -> list[Any]:
    """Text, tokens and log-probabilities of each conversation, greedy and drawn."""
    found = []
    for messages in turns:
        for temperature in (0.0, 1.0):
            answer = ask(
                client,
                *messages,
                temperature=temperature,
                seed=3,
                max_tokens=12,
                logprobs=True,
                top_logprobs=4,
            )
            choice = answer.choices[0]
            found.append((choice.message.content, choice.logprobs.model_dump()))
    return found


@pytest.mark.parametrize("recipe", ["exact", "quality", "balanced", "fast", "small"])
def test_logprobs_are_the_same_with_cold_and_warm_caches(serve: Serve, recipe: str) -> None:
    picture = image(5)
    said = {"role": "assistant", "content": "It says: the total is 12.50, paid in cash."}
    first = (user(picture, SHARED + "what is the total?"),)
    turns: list[tuple[Any, ...]] = [
        first,
        (*first, said, user("And how was it paid?")),
        (user(picture, SHARED + "who signed it?"),),
        (user(SHARED * 9 + "no picture"),),
    ]
    server = serve("--recipe", recipe, "--no-disk-cache").wait_ready()
    with server.client() as client:
        cold = [answers(client, [turn])[0] for turn in turns]
        warm = answers(client, turns[::-1])[::-1]
        again = answers(client, turns)
    # Each conversation on a server whose caches hold nothing of it.
    for number, turn in enumerate(turns):
        fresh = serve("--recipe", recipe, "--no-disk-cache").wait_ready()
        with fresh.client() as client:
            greedy, drawn = answers(client, [turn])
        assert cold[number] == greedy
        assert again[2 * number : 2 * number + 2] == [greedy, drawn]
        assert warm[2 * number : 2 * number + 2] == [drawn, greedy]
        fresh.process.kill()
