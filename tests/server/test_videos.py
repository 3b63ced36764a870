"""Videos over HTTP: as vLLM spells them, as lists of pictures, uploaded, and refused."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest

from tests.inputs.videos import write_video
from tests.server.process import Server


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_video(tmp_path_factory.mktemp("clips") / "clip.mp4", 20, rate=10).read_bytes()


def data_url(content: bytes, kind: str = "video/mp4") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def picture(seed: int) -> str:
    file = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), np.uint8)
    PIL.Image.fromarray(noise).save(file, "PNG")
    return data_url(file.getvalue(), "image/png")


def post(server: Server, *parts: dict[str, Any], **fields: Any) -> httpx.Response:
    content = [*parts, {"type": "text", "text": "Hi"}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 4}
    sizes = {"min_pixels": 1024, "max_pixels": 4096, "temperature": 0}
    url = f"{server.address}/v1/chat/completions"
    return server.http.post(url, json=body | sizes | fields, timeout=60)


def image_tokens(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    tokens: int = answer.json()["usage"]["prompt_tokens_details"]["image_tokens"]
    return tokens


def test_spellings(server: Server, clip: bytes) -> None:
    url = data_url(clip)
    parts: list[dict[str, Any]] = [
        {"type": "video_url", "video_url": {"url": url}},
        {"type": "video_url", "video_url": url},
        {"type": "input_video", "video_url": url},
        {"type": "video", "video": url},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    answers = [post(server, part) for part in parts]
    assert {image_tokens(answer) for answer in answers} == {2 * 4}
    assert len({a.json()["choices"][0]["message"]["content"] for a in answers}) == 1


def test_options(server: Server, clip: bytes) -> None:
    url = data_url(clip)
    one = {"type": "video_url", "video_url": {"url": url, "num_frames": 2}}
    assert image_tokens(post(server, one)) == 4
    other = {"type": "video", "video": url, "nframes": 6, "video_start": 0.5}
    assert image_tokens(post(server, other)) == 12
    wrong = {"type": "video_url", "video_url": {"url": url, "num_frames": 2, "fps": 1}}
    error = post(server, wrong).json()["error"]
    assert error["param"] == "messages[0].content[0].video_url"
    assert "exclude each other" in error["message"]


def test_a_list_of_pictures(server: Server) -> None:
    part = {"type": "video", "video": [picture(n) for n in range(5)], "fps": 1}
    assert image_tokens(post(server, part)) == 3 * 4


def test_an_upload(server: Server, clip: bytes) -> None:
    stored = server.http.post(f"{server.address}/v1/images", content=clip)
    assert stored.status_code == 200, stored.text
    part = {"type": "video_url", "video_url": {"url": stored.json()["id"]}}
    assert image_tokens(post(server, part)) == 8


def test_what_is_no_video(server: Server, clip: bytes) -> None:
    for url, why in (
        (data_url(clip[: len(clip) // 3]), "cannot decode"),
        (data_url(b"hello"), "not a video of a known format"),
        (picture(1), "not a video of a known format"),
        ("https://example.com/a.mp4", "does not fetch"),
        ("a.mp4", "must be a data URL"),
    ):
        answer = post(server, {"type": "video_url", "video_url": {"url": url}})
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert why in error["message"]
        assert error["param"] == "messages[0].content[0].video_url.url"
    for part in ({"type": "video"}, {"type": "video", "video": []}, {"type": "video_url"}):
        error = post(server, part).json()["error"]
        assert "needs a video; write" in error["message"]
