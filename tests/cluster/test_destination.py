"""What a request's body says about where it should go."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.cluster.destination import Destination, destination_of, picture_key

CONTENT = b"\x89PNG not really"
KEY = hashlib.sha256(CONTENT).hexdigest()
URL = f"data:image/png;base64,{base64.b64encode(CONTENT).decode()}"


def chat(*turns: Any, **fields: Any) -> Destination:
    return destination_of(json.dumps({"messages": list(turns), **fields}).encode())


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": URL}},
        {"type": "image_url", "image_url": URL},
        {"type": "input_image", "image_url": URL},
        {"type": "video_url", "video_url": {"url": URL}},
        {"type": "video", "video": [URL, "https://x/2.png"]},
        {"type": "file", "file": {"file_data": URL}},
        {"type": "image_url", "image_url": {"url": f" qwink:sha256:{KEY} "}},
    ],
)
def test_the_first_picture_in_each_spelling(part: dict[str, Any]) -> None:
    other = {"type": "image_url", "image_url": {"url": "https://x/1.png"}}
    text = {"type": "text", "text": "What?"}
    assert chat({"role": "system", "content": "Hi"}, user(text, part, other)).picture == KEY
    body = json.dumps({"input": [user(text, part)]}).encode()
    assert destination_of(body).picture == KEY


def test_other_urls_are_known_by_their_text() -> None:
    assert picture_key("https://x/1.png") == hashlib.sha256(b"https://x/1.png").hexdigest()
    damaged = "data:image/png;base64,!"
    assert picture_key(damaged) == hashlib.sha256(damaged.encode()).hexdigest()


def test_all_uploads_are_named_once() -> None:
    parts = [{"image_url": {"url": f"qwink:sha256:{digit * 64}"}} for digit in "abca"]
    assert chat(user(*parts)).uploads == tuple(digit * 64 for digit in "abc")


def test_a_conversation_starts_as_the_one_before() -> None:
    first = [{"role": "system", "content": "Hi"}, user("a")]
    more = [*first, {"role": "assistant", "content": "b"}, user("c")]
    before, after = chat(*first).starts, chat(*more).starts
    assert len(after) == 4
    assert after[2:] == before  # from the longest to the shortest
    assert chat(*first, temperature=1).starts == before
    assert not set(chat(user("z"), *more).starts) & set(after)


def test_instructions_are_the_start_of_a_response() -> None:
    one, other = (
        destination_of(json.dumps({"input": "a", "instructions": text}).encode()).starts
        for text in ("x", "y")
    )
    assert len(one) == 1
    assert one != other


def test_long_conversations_have_their_longest_starts() -> None:
    turns = [user(str(number)) for number in range(100)]
    found = chat(*turns).starts
    assert len(found) == 64
    assert found[1:] == chat(*turns[:-1]).starts[:-1]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["messages", "input", "content", "image_url", "url", "video"]),
                inner,
            )
        ),
    )
)
def test_any_json_has_a_destination(document: Any) -> None:
    assert isinstance(destination_of(json.dumps(document).encode()), Destination)


@pytest.mark.parametrize(
    "body", [b"", b"no", b"\xff", b"[" * 100_000, b'{"messages":' + b"[" * 900]
)
def test_what_is_no_json_has_an_empty_one(body: bytes) -> None:
    assert destination_of(body) == Destination()
