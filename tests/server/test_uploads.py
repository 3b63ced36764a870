"""Uploading pictures and referring to them in requests."""

from __future__ import annotations

import hashlib

import openai
import pytest

from tests.server.process import Server, ask, image, png, user


def test_an_uploaded_picture_gives_the_same_answer(server: Server, client: openai.OpenAI) -> None:
    content = png(20)
    name = f"qwink:sha256:{hashlib.sha256(content).hexdigest()}"
    url = f"{server.address}/v1/images"
    assert server.http.head(f"{url}/{name}").status_code == 404
    sent = server.http.post(url, content=content, headers={"Content-Type": "image/png"})
    assert sent.status_code == 200
    document = sent.json()
    assert document["id"] == name
    assert (document["width"], document["height"]) == (64, 64)
    assert (document["bytes"], document["format"]) == (len(content), "PNG")
    assert server.http.head(f"{url}/{name}").status_code == 200
    assert server.http.head(f"{url}/{name.rsplit(':', 1)[1]}").status_code == 200
    there = {"type": "image_url", "image_url": {"url": name}}
    texts = [
        ask(client, user(part, "Hi")).choices[0].message.content for part in (there, image(20))
    ]
    assert texts[0] == texts[1]


def test_uploads_as_a_form(server: Server) -> None:
    url = f"{server.address}/v1/images"
    sent = server.http.post(url, files={"file": ("a.png", png(21), "image/png")})
    assert sent.json()["id"].endswith(hashlib.sha256(png(21)).hexdigest())
    assert server.http.post(url, files={"other": b"x"}).json()["error"]["param"] == "file"
    broken = server.http.post(url, content=b"x", headers={"Content-Type": "multipart/form-data"})
    assert broken.json()["error"]["code"] == "invalid_form"


@pytest.mark.parametrize("content", [b"", b"not a picture", b"%PDF-1.7"])
def test_files_that_are_not_pictures_are_refused(server: Server, content: bytes) -> None:
    response = server.http.post(f"{server.address}/v1/images", content=content)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_image"


def test_uploads_are_bounded(server: Server) -> None:
    url = f"{server.address}/v1/images"
    names = [server.http.post(url, content=png(seed, 400)).json()["id"] for seed in range(30, 36)]
    known = [server.http.head(f"{url}/{name}").status_code for name in names]
    assert known == [404, 404, 404, 200, 200, 200][-6:] or known.count(200) == 4
    assert server.metric('qwink_cache_bytes{cache="uploads"}') <= 2 << 20
    assert server.metric('qwink_cache_evictions_total{cache="uploads"}') > 0
