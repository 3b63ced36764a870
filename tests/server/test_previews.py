"""Small pictures of pages and frames, to choose from."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import httpx
import PIL.Image
import pytest

from tests.inputs.pdfs import write_pdf
from tests.inputs.videos import write_video
from tests.server.process import Server, png


def post(server: Server, content: bytes, **options: int) -> httpx.Response:
    return server.http.post(f"{server.address}/v1/previews", params=options, content=content)


def opened(preview: dict[str, Any]) -> PIL.Image.Image:
    head, data = preview["url"].split(",")
    assert head == "data:image/jpeg;base64"
    return PIL.Image.open(io.BytesIO(base64.b64decode(data)))


def test_a_picture(server: Server) -> None:
    found = post(server, png(3, 400), side=100).json()
    assert (found["kind"], found["format"], found["width"], found["height"]) == (
        "image",
        "PNG",
        400,
        400,
    )
    assert opened(found["previews"][0]).size == (100, 100)


def test_pages_of_a_pdf(server: Server) -> None:
    document = write_pdf(["one", "two", "three"])
    found = post(server, document, first=2, count=1, side=64).json()
    assert (found["kind"], found["num_pages"]) == ("pdf", 3)
    assert [one["page"] for one in found["previews"]] == [2]
    assert max(opened(found["previews"][0]).size) == 64
    assert found["previews"][0]["height"] > 64  # of the page at full size
    assert post(server, document, first=9).json()["previews"] == []


def test_frames_of_a_video(server: Server, tmp_path: Path) -> None:
    found = post(
        server, write_video(tmp_path / "clip.mp4", 20, rate=10).read_bytes(), count=3
    ).json()
    assert found["kind"] == "video"
    times = [one["time_s"] for one in found["previews"]]
    assert times[0] == 0
    assert times == sorted(set(times))
    assert times[-1] <= found["duration_s"]
    assert opened(found["previews"][0]).width <= 192


@pytest.mark.parametrize("content", [b"", b"text", b"%PDF-1.7 cut", b"\0\0\0\x20ftypisom cut"])
def test_what_cannot_be_read(server: Server, content: bytes) -> None:
    response = post(server, content)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_image"


def test_options_out_of_range(server: Server) -> None:
    error = post(server, png(3), count=1000).json()["error"]
    assert (error["param"], error["code"]) == ("count", "invalid_value")
