from __future__ import annotations

import pytest

from tests.inputs.pictures import refusal


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"%PDF-1.7\n", "a PDF"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
        (b"<!DOCTYPE html><html></html>", "a web page (HTML)"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "a HEIC photo"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "an AVIF picture"),
        (b"\0\0\0\x20ftypisom\0\0\0\0", "a video"),
        (b"PK\x03\x04....", "a ZIP archive"),
        ("Grüße, 你好\n".encode(), "text"),
        ("é".encode() * 600, "text"),
    ],
)
def test_other_formats_are_named(data: bytes, looks: str) -> None:
    message = refusal(data)
    assert f"the image looks like {looks}" in message
    assert message.endswith("supported are JPEG, PNG, WebP, GIF, BMP and TIFF")


def test_unknown_bytes_are_refused() -> None:
    assert "is no picture of a known format" in refusal(b"\xfe\xdc\xba\0\1\2")
