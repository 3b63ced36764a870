from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwink.errors import ImageError, ImageTooLarge
from qwink.inputs.images import OpenedImage, decode, open_image
from tests.inputs.pictures import (
    FORMATS,
    SAMPLES,
    exif,
    frames,
    heic,
    quadrants,
    read,
    refusal,
    sample,
    save,
)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_pixels(kind: str) -> None:
    opened = open_image(sample(kind))
    assert (opened.format, opened.size, opened.warnings) == (kind, (48, 32), ())
    picture = decode(opened)
    assert picture.pixels.dtype == np.uint8
    assert picture.original_size == picture.size == (48, 32)
    tolerance = 4 if kind in ("JPEG", "AVIF", "HEIC") else 0
    assert np.abs(picture.pixels.astype(int) - quadrants()).max() <= tolerance
    assert not picture.pixels.flags.writeable


def test_paths_and_bytes_share_a_key(tmp_path: Path) -> None:
    file = tmp_path / "bild ä.png"
    file.write_bytes(SAMPLES["PNG"])
    keys = {open_image(source).key for source in (file, str(file), SAMPLES["PNG"])}
    assert len(keys) == 1
    assert re.fullmatch("[0-9a-f]{64}", keys.pop())
    assert open_image(SAMPLES["BMP"]).key != open_image(file).key


def test_arrays_and_pil_images_share_a_key_apart_from_files_and_shapes() -> None:
    pixels = quadrants()
    key = open_image(pixels).key
    assert open_image(PIL.Image.fromarray(pixels)).key == key
    assert open_image(np.asfortranarray(pixels)).key == key
    assert open_image(pixels.reshape(48, 32, 3)).key != key
    assert open_image(SAMPLES["PNG"]).key != key


def test_an_array_is_copied() -> None:
    pixels = quadrants()
    opened = open_image(pixels)
    pixels[:] = 0
    assert np.array_equal(decode(opened).pixels, quadrants())
    pixels[:] = 1  # the source stays writeable


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (5, 7, 4)])
def test_array_shapes(shape: tuple[int, ...]) -> None:
    picture = read(np.full(shape, 255, np.uint8))
    assert picture.pixels.shape == (5, 7, 3)
    assert picture.pixels.min() == 255


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_from_0_to_1(dtype: Any) -> None:
    floats = (quadrants() / 255).astype(dtype)
    assert np.array_equal(read(floats).pixels, quadrants())
    assert open_image(floats).key == open_image(quadrants()).key


@pytest.mark.parametrize("worst", [255.0, -0.1, 1.5, np.nan, np.inf])
def test_other_floats_are_refused(worst: float) -> None:
    array = np.zeros((5, 7))
    array[2, 3] = worst
    with pytest.raises(ImageError, match=r"must lie in 0\.\.1"):
        open_image(array)


def test_file_objects(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(SAMPLES["PNG"])
    with file.open("rb") as opened:
        assert open_image(opened).key == open_image(file).key
    with file.open(encoding="latin-1") as text, pytest.raises(ImageError, match="gives text"):
        open_image(text)  # type: ignore[arg-type]
    with pytest.raises(ImageError, match="cannot read the file object"):
        open_image(opened)


def test_base64_given_as_a_path_is_not_repeated() -> None:
    for kind in ("JPEG", "PNG", "GIF", "WebP", "BMP"):
        text = base64.b64encode(SAMPLES[kind]).decode()
        for spelling in (text, text.rstrip("="), f"{text[:76]}\n{text[76:]}"):
            message = refusal(spelling)
            assert "data:image/png;base64,..." in message
            assert text[:20] not in message
    assert len(refusal("photos/" + "x.y" * 2000)) < 200


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((5, 7, 3), np.int64),
        np.zeros((3, 5, 7), np.uint8),
        np.zeros((1, 5, 7, 3), np.uint8),
        np.zeros((0, 7, 3), np.uint8),
    ],
)
def test_other_arrays_are_refused(array: Any) -> None:
    with pytest.raises(ImageError, match=r"give uint8 in 0\.\.255 of shape"):
        open_image(array)


# --- modes


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize(
    ("at_least", "decoded"),
    [
        ((100, 75), (100, 75)),
        ((101, 75), (200, 150)),
        ((100, 76), (200, 150)),
        ((1, 1), (100, 75)),
        ((0, 0), (100, 75)),
        ((500, 10), (800, 600)),
        ((9000, 9000), (800, 600)),
    ],
)
def test_draft(orientation: int, at_least: tuple[int, int], decoded: tuple[int, int]) -> None:
    whole = quadrants(800, 600)

    def turn(size: tuple[int, int]) -> tuple[int, int]:
        return size if orientation == 1 else (size[1], size[0])

    opened = open_image(save(whole, "JPEG", exif=exif(orientation)))
    picture = decode(opened, turn(at_least))
    assert picture.size == turn(decoded)
    assert picture.original_size == turn((800, 600))
    assert picture.key == opened.key


def test_draft_decodes_other_formats_at_full_size() -> None:
    assert decode(open_image(SAMPLES["PNG"]), (4, 4)).size == (48, 32)


# --- several frames


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_is_taken_with_a_warning(kind: str) -> None:
    picture = read(frames(kind, **({"lossless": True} if kind == "WEBP" else {})))
    assert np.array_equal(picture.pixels, quadrants())
    part = "page" if kind == "TIFF" else "frame"
    assert picture.warnings == (f"the image has several {part}s; only the first {part} is used",)


# --- limits


@pytest.mark.parametrize(("width", "height"), [(1, 1), (20_000, 50), (50, 20_000)])
def test_odd_shapes(width: int, height: int) -> None:
    pixels = np.full((height, width, 3), 200, np.uint8)
    for kind in ("PNG", "JPEG"):
        assert decode(open_image(save(pixels, kind)), (width * 2, 64)).size == (width, height)


@pytest.mark.parametrize("kind", FORMATS)
def test_size_is_checked_before_decoding(kind: str) -> None:
    data = sample(kind)
    least = 24 * 16 if kind == "JPEG" else 48 * 32  # a JPEG is decoded at half its size
    with pytest.raises(ImageTooLarge, match=r"48×32 = 0\.0 megapixels, more than the limit"):
        open_image(data, max_image_pixels=least - 1)
    picture = decode(open_image(data, max_image_pixels=least))
    assert picture.original_size == (48, 32)
    assert picture.size == ((24, 16) if kind == "JPEG" else (48, 32))


def test_a_large_progressive_jpeg_is_refused() -> None:
    """Its decoder keeps the coefficients of all pixels, at any scale."""
    with pytest.raises(ImageTooLarge):
        open_image(save(quadrants(), "JPEG", progressive=True), max_image_pixels=48 * 32 - 1)


def test_a_photo_of_108_megapixels_is_decoded_reduced() -> None:
    photo = PIL.Image.new("RGB", (12_000, 9_000), (200, 30, 60))
    picture = decode(open_image(save(photo, "JPEG")))
    assert picture.original_size == (12_000, 9_000)
    assert picture.size == (6_000, 4_500)


def test_size_of_arrays_and_pil_images_is_checked() -> None:
    for source in (quadrants(), PIL.Image.fromarray(quadrants())):
        with pytest.raises(ImageTooLarge):
            open_image(source, max_image_pixels=1000)


def test_too_many_pixels_are_refused_from_the_header() -> None:
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    body = b"IHDR" + header
    chunk = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    idat = struct.pack(">I", 1000) + b"IDAT"
    with pytest.raises(ImageTooLarge, match=r"100000×100000 = 10000\.0 megapixels"):
        open_image(b"\x89PNG\r\n\x1a\n" + chunk + idat)


def test_pillows_limit_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 48 * 32 * 2 // 3)
    with pytest.warns(PIL.Image.DecompressionBombWarning):
        PIL.Image.open(io.BytesIO(SAMPLES["PNG"]))
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 10)
    for kind in ("JPEG", "PNG", "GIF", "BMP"):
        assert read(SAMPLES[kind]).size == (48, 32)
    with pytest.raises(ImageTooLarge, match=r"PIL\.Image\.MAX_IMAGE_PIXELS"):
        open_image(SAMPLES["WebP"])  # Pillow's reader applies it
    assert PIL.Image.MAX_IMAGE_PIXELS == 10


# --- what cannot be used


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = refusal(tmp_path / "none.png")
    assert missing == f"no such file: {str(tmp_path / 'none.png')!r}; check the path"
    assert "is a folder" in refusal(tmp_path)
    empty = tmp_path / "empty.jpg"
    empty.touch()
    assert "is empty (0 bytes)" in refusal(str(empty))
    assert "is empty" in refusal(b"")
    assert "cannot read" in refusal("a\0b")
    assert "cannot read" in refusal("x y " * 2000)
    assert "cannot make a picture of NoneType" in refusal(None)
    assert "no pixels" in refusal(PIL.Image.new("RGB", (0, 5)))


NOISE = np.random.default_rng(0).integers(0, 256, (160, 64, 3), np.uint8)


@pytest.mark.parametrize("kind", FORMATS)
def test_files_without_most_of_their_data_are_refused(kind: str) -> None:
    data = heic(NOISE) if kind == "HEIC" else save(NOISE, kind.upper())
    for length in (12, 30, 60, len(data) * 2 // 5):
        assert "cannot decode the image as" in refusal(data[:length]) or length == 12


@pytest.mark.parametrize("kind", [kind for kind in SAMPLES if kind not in ("JPEG", "PNG")])
def test_formats_that_are_not_decoded_in_part(kind: str) -> None:
    data = save(NOISE, kind.upper())
    assert "cannot decode the image as" in refusal(data[: len(data) * 3 // 4])


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_missing_end_gives_a_warning(kind: str) -> None:
    data = save(NOISE, kind)
    whole = read(data).pixels
    for share, least in ((0.75, 100), (0.9, 120)):
        picture = read(data[: int(len(data) * share)])
        assert np.array_equal(picture.pixels[:least], whole[:least])
        (warning,) = picture.warnings
        found = re.fullmatch(
            r"the image: cut off at its end: the last (\d+) % of its rows are missing; "
            "save or download the file again",
            warning,
        )
        assert found is not None
        assert abs(int(found[1]) / 100 - (1 - share)) < 0.15


def test_a_jpeg_that_lacks_its_last_two_bytes() -> None:
    picture = read(SAMPLES["JPEG"][:-2])
    assert np.array_equal(picture.pixels, read(SAMPLES["JPEG"]).pixels)
    assert "cut off" in picture.warnings[0]


def test_a_progressive_jpeg_without_its_end() -> None:
    data = save(NOISE, "JPEG", progressive=True, quality=95)
    picture = read(data[: len(data) * 3 // 4])
    assert picture.size == (64, 160)
    assert "cut off" in picture.warnings[0]


@pytest.mark.parametrize("kind", FORMATS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damaged_files_decode_or_are_refused(kind: str, data: st.DataObject) -> None:
    damaged = bytearray(sample(kind))
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(1, len(damaged))) :]
    try:
        picture = decode(open_image(bytes(damaged), max_image_pixels=1_000_000))
    except ImageError:
        return
    assert picture.pixels.shape[2] == 3


def test_the_opened_image_hides_its_bytes_when_printed() -> None:
    opened: OpenedImage = open_image(SAMPLES["PNG"])
    assert len(repr(opened)) < 300
