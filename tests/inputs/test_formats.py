from __future__ import annotations

import sys

import pytest

from qwink.inputs.formats import identify
from tests.inputs.pictures import SAMPLES, refusal


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"%PDF-1.7\n", "a PDF"),
        (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
        (b"<!DOCTYPE html><html></html>", "a web page (HTML)"),
        (b"\0\0\0\x20ftypisom\0\0\0\0", "a video"),
        (b"PK\x03\x04....", "a ZIP archive"),
        ("Grüße, 你好\n".encode(), "text"),
        ("é".encode() * 600, "text"),
    ],
)
def test_other_formats_are_named(data: bytes, looks: str) -> None:
    message = refusal(data)
    assert f"the image looks like {looks}" in message
    assert message.endswith("supported are JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF and HEIC")


def test_unknown_bytes_are_refused() -> None:
    assert "is not a picture of a known format" in refusal(b"\xfe\xdc\xba\0\1\2")


@pytest.mark.parametrize(
    ("brands", "kind"),
    [
        (b"heic\0\0\0\0mif1", "HEIC"),
        (b"mif1\0\0\0\0mif1heic", "HEIC"),
        (b"mif1\0\0\0\0mif1avif", "AVIF"),
        (b"avif\0\0\0\0mif1", "AVIF"),
        (b"msf1\0\0\0\0hevc", "HEIC"),
    ],
)
def test_brands_of_heif_files(brands: bytes, kind: str) -> None:
    head = (8 + len(brands)).to_bytes(4, "big") + b"ftyp" + brands
    assert identify(head, "the image") == kind


def test_heic_without_its_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    message = refusal(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    assert message.startswith("HEIC pictures need pillow-heif; install it")


def test_avif_without_its_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.features.check", lambda _: False)
    assert "no AVIF decoder" in refusal(SAMPLES["AVIF"])
