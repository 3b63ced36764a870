"""Pages in strips over HTTP."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import PIL.Image
import PIL.ImageDraw
import pytest

from qwink.lab.pictures.sketch import font
from tests.server.process import Server


@pytest.fixture(scope="module")
def url() -> str:
    image = PIL.Image.new("RGB", (256, 384), "white")
    draw = PIL.ImageDraw.Draw(image)
    for number in range(12):
        draw.text((16, 10 + 30 * number), f"{number} harbour ferry", "black", font(16))
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def body(url: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    picture = {"type": "image_url", "image_url": {"url": url}}
    text = {"type": "text", "text": "Read the text."}
    return {
        "model": "tiny",
        "messages": [{"role": "user", "content": [*[picture] * count, text]}],
        "max_pixels": 96 * 1024,
        "min_pixels": 1024,
        "max_tokens": 10,
        **fields,
    }


def test_a_page_in_strips_is_one_answer(server: Server, url: str) -> None:
    whole = server.http.post(f"{server.address}/v1/chat/completions", json=body(url, strips=3))
    assert whole.status_code == 200, whole.text
    document = whole.json()
    assert document["usage"]["completion_tokens"] == 10
    assert document["usage"]["prompt_tokens"] > 30
    streamed = server.http.post(
        f"{server.address}/v1/chat/completions", json=body(url, strips=3, stream=True)
    )
    lines = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: {")]
    chunks = [json.loads(line)["choices"] for line in lines]
    text = "".join(c[0]["delta"].get("content") or "" for c in chunks if c)
    assert text == document["choices"][0]["message"]["content"]


def test_several_answers_about_strips(server: Server, url: str) -> None:
    found = server.http.post(
        f"{server.address}/v1/chat/completions",
        json=body(url, strips=2, n=2, temperature=1.0, seed=3, max_tokens=6),
    )
    assert found.status_code == 200, found.text
    document = found.json()
    assert [choice["index"] for choice in document["choices"]] == [0, 1]
    assert [choice["finish_reason"] for choice in document["choices"]] == ["length"] * 2
    assert document["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize(
    ("fields", "count", "words"),
    [
        ({"strips": 1}, 1, "strips"),
        ({"strips": "many"}, 1, "strips"),
        ({"strips": 2, "logprobs": True}, 1, "strips and logprobs exclude each other"),
        ({"strips": 2, "stop": "x"}, 1, "strips and stop texts exclude each other"),
        ({"strips": 2}, 2, "one question about one picture"),
        ({"strips": 2, "response_format": {"type": "json_object"}}, 1, "strips and a shape"),
    ],
)
def test_what_cannot_be_joined_is_a_400(
    server: Server, url: str, fields: dict[str, Any], count: int, words: str
) -> None:
    found = server.http.post(
        f"{server.address}/v1/chat/completions", json=body(url, count, **fields)
    )
    assert found.status_code == 400, found.text
    assert words in found.json()["error"]["message"] + str(found.json()["error"]["param"])
