"""Answers that say what may make them wrong, and limits of pictures, over HTTP."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import PIL.Image

from tests.server.process import Serve, Server


def picture(*size: int, kind: str = "PNG", cut: int = 0) -> dict[str, Any]:
    file = io.BytesIO()
    PIL.Image.effect_noise((size[0], size[1]), 80).convert("RGB").save(file, kind)
    data = base64.b64encode(file.getvalue()[: len(file.getvalue()) - cut]).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def post(server: Server, *parts: dict[str, Any], **fields: Any) -> httpx.Response:
    content = [*parts, {"type": "text", "text": "Hi"}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 2}
    url = f"{server.address}/v1/chat/completions"
    return server.http.post(url, json=body | fields, timeout=60)


def test_warnings(server: Server) -> None:
    parts = picture(64, 64, kind="AVIF"), picture(64, 2048), picture(64, 64, kind="JPEG", cut=2)
    answer = post(server, *parts, max_pixels=8192).json()
    small, cut = answer["warnings"]
    assert small.startswith("image 2 of 3: the image is shown at ")
    assert small.endswith("of its size (64×2048); crop it or raise max_pixels")
    assert cut.startswith("image 3 of 3: the image: cut off at its end")


def test_an_end_that_the_request_did_not_choose_is_a_warning(server: Server) -> None:
    parts = [picture(64, 64, kind="AVIF"), {"type": "text", "text": "Hi"}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": parts}], "temperature": 0}
    url = f"{server.address}/v1/chat/completions"
    answer = server.http.post(url, json=body, timeout=120).json()
    reason = answer["choices"][0]["finish_reason"]
    assert reason == "length", "the random model of the tests does not end by itself"
    assert answer["warnings"][0].startswith("stopped after ")


def test_limits_of_pictures(serve: Serve) -> None:
    server = serve("--max-image-pixels", 5000, "--max-images", 2).wait_ready()
    error = post(server, picture(128, 128)).json()["error"]
    assert error["code"] == "image_too_large"
    assert "start the server with a larger --max-image-pixels" in error["message"]
    assert post(server, picture(128, 128, kind="JPEG")).status_code == 200
    error = post(server, *(picture(32, 32) for _ in range(3))).json()["error"]
    assert (error["code"], error["param"]) == ("too_many_images", "messages")
    raw = server.http.post(
        f"{server.address}/v1/images",
        content=base64.b64decode(picture(128, 128)["image_url"]["url"].partition(",")[2]),
    )
    assert raw.json()["error"]["code"] == "image_too_large"


def test_reading_is_greedy_unless_the_request_says_otherwise(server: Server) -> None:
    part = picture(64, 64)

    def texts(**fields: Any) -> set[str]:
        answers = (post(server, part, max_tokens=8, max_pixels=8192, **fields) for _ in range(3))
        return {answer.json()["choices"][0]["message"]["content"] for answer in answers}

    assert len(texts(task="ocr")) == 1
    assert len(texts(task="ocr", temperature=2.0)) > 1
