"""Replies → answers that can be compared."""

from __future__ import annotations

import json
from typing import Any

from qwink.lab.soak.questions import CHAT, Answer
from qwink.lab.soak.wire import Reply


class Unreadable(Exception):
    """The reply is no complete answer. The message says why."""


def answer_of(path: str, reply: Reply, stream: bool) -> Answer:
    """What a reply says. Raises Unreadable."""
    if reply.status != 200:
        raise Unreadable(f"status {reply.status}, code {reply.code}")
    try:
        if path == CHAT:
            return _streamed_chat(reply.events()) if stream else _chat(json.loads(reply.body))
        document = reply.events()[-1]["response"] if stream else json.loads(reply.body)
        if stream:
            _check_deltas(reply.events(), document)
        return _response(document)
    except (ValueError, LookupError, TypeError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}; {reply.body[-200:]!r}") from None


def _chat(document: dict[str, Any]) -> Answer:
    choice = document["choices"][0]
    return Answer(choice["message"]["content"], choice["finish_reason"], _logprobs(choice))


def _streamed_chat(events: list[dict[str, Any]]) -> Answer:
    choices = [event["choices"][0] for event in events if event["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    logprobs = tuple(pair for choice in choices for pair in _logprobs(choice))
    reasons = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
    return Answer(text, reasons[-1], logprobs)


def _logprobs(choice: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    content = (choice.get("logprobs") or {}).get("content") or []
    entries = [entry for token in content for entry in (token, *token["top_logprobs"])]
    return tuple((entry["token"], entry["logprob"]) for entry in entries)


def _response(document: dict[str, Any]) -> Answer:
    return Answer(document["output"][0]["content"][0]["text"], document["status"])


def _check_deltas(events: list[dict[str, Any]], document: dict[str, Any]) -> None:
    """The pieces of a stream together are its last event's text."""
    deltas = "".join(
        event["delta"] for event in events if event["type"] == "response.output_text.delta"
    )
    if deltas != document["output"][0]["content"][0]["text"]:
        raise ValueError(f"the deltas are not the text: {deltas!r}")
