from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwink.errors import ImageError, ImageTooLarge
from qwink.inputs.images import SUPPORTED_FORMATS, OpenedImage, decode, open_image
from qwink.types import Picture

Array = NDArray[np.uint8]
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def quadrants(width: int = 48, height: int = 32) -> Array:
    pixels = np.zeros((height, width, 3), np.uint8)
    top, left = height // 2, width // 2
    pixels[:top, :left], pixels[:top, left:] = RED, GREEN
    pixels[top:, :left], pixels[top:, left:] = BLUE, WHITE
    return pixels


def save(image: PIL.Image.Image | Array, kind: str, **options: Any) -> bytes:
    if isinstance(image, np.ndarray):
        image = PIL.Image.fromarray(image)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def read(source: Any) -> Picture:
    return decode(open_image(source))


def frames(kind: str, **options: Any) -> bytes:
    pixels = quadrants()
    later = [PIL.Image.fromarray(pixels[::-1]), PIL.Image.fromarray(pixels[:, ::-1])]
    return save(pixels, kind, save_all=True, append_images=later, **options)


SAMPLES = {
    "JPEG": save(quadrants(), "JPEG", quality=100, subsampling=0),
    "PNG": save(quadrants(), "PNG"),
    "WebP": save(quadrants(), "WEBP", lossless=True),
    "GIF": save(quadrants(), "GIF"),
    "BMP": save(quadrants(), "BMP"),
    "TIFF": save(quadrants(), "TIFF"),
}


@pytest.mark.parametrize("kind", SUPPORTED_FORMATS)
def test_every_format_gives_the_same_pixels(kind: str) -> None:
    opened = open_image(SAMPLES[kind])
    assert (opened.format, opened.size, opened.warnings) == (kind, (48, 32), ())
    picture = decode(opened)
    assert picture.pixels.dtype == np.uint8
    assert picture.original_size == picture.size == (48, 32)
    tolerance = 4 if kind == "JPEG" else 0
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


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((5, 7, 3), np.float32),
        np.zeros((3, 5, 7), np.uint8),
        np.zeros((1, 5, 7, 3), np.uint8),
        np.zeros((0, 7, 3), np.uint8),
    ],
)
def test_other_arrays_are_refused(array: Any) -> None:
    with pytest.raises(ImageError, match=r"give uint8 in 0\.\.255 of shape"):
        open_image(array)


# --- modes


def test_cmyk_and_grey_and_progressive_jpeg() -> None:
    solid = PIL.Image.new("RGB", (32, 32), (200, 30, 60))
    for image, options in ((solid.convert("CMYK"), {}), (solid, {"progressive": True})):
        mean = read(save(image, "JPEG", quality=95, **options)).pixels.mean(axis=(0, 1))
        assert np.abs(mean - (200, 30, 60)).max() < 4
    grey = read(save(solid.convert("L"), "JPEG")).pixels
    assert grey.shape == (32, 32, 3)
    assert np.ptp(grey, axis=2).max() == 0


def test_palette_and_one_bit_png() -> None:
    palette = PIL.Image.fromarray(quadrants()).quantize(4)
    assert np.array_equal(read(save(palette, "PNG")).pixels, quadrants())
    bits = PIL.Image.fromarray(quadrants()[:, :, 0]).convert("1")
    assert set(np.unique(read(save(bits, "PNG")).pixels)) == {0, 255}


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "La", "RGBa"])
def test_alpha_is_laid_on_white(mode: str) -> None:
    rgba = np.zeros((4, 4, 4), np.uint8)
    rgba[:2, :, 3] = 255
    rgba[2, :, 3] = 128
    image = PIL.Image.fromarray(rgba)
    if mode in ("La", "RGBa"):
        image = image.convert({"La": "LA", "RGBa": "RGBA"}[mode])
    image = image.convert(mode)
    expected = [0, 0, 127, 255]
    for source in [image] if mode in ("PA", "La", "RGBa") else [image, save(image, "PNG")]:
        assert np.abs(read(source).pixels[:, 0, 0].astype(int) - expected).max() <= 1


@pytest.mark.parametrize("mode", ["P", "L", "1", "RGB", "I;16"])
def test_a_transparent_colour_becomes_white(mode: str) -> None:
    image = PIL.Image.new(mode, (4, 4))
    black: Any = (0, 0, 0) if mode == "RGB" else 0
    assert read(save(image, "PNG", transparency=black)).pixels.min() == 255
    assert read(save(image, "PNG")).pixels.max() == 0


def png16(values: NDArray[np.uint16], colour_type: int) -> bytes:
    """A 16-bit PNG; Pillow writes only the grey kind."""

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    height, width = values.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    chunks = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(4, 0)
    expected = np.rint(ramp / 257)
    assert np.array_equal(read(png16(ramp, 0)).pixels[..., 0], expected)
    assert np.array_equal(read(save(PIL.Image.fromarray(ramp), "TIFF")).pixels[..., 1], expected)
    rgb = np.repeat(ramp[..., None], 3, axis=2)
    assert np.abs(read(png16(rgb, 2)).pixels[..., 0] - expected).max() <= 1
    grey_alpha = np.stack([ramp, np.full_like(ramp, 65535)], axis=2)
    assert np.abs(read(png16(grey_alpha, 4)).pixels[..., 0] - expected).max() <= 1


@pytest.mark.parametrize(
    ("values", "expected", "warned"),
    [
        (np.array([[0, 1]], np.float32), [0, 255], False),
        (np.array([[0, 200]], np.float32), [0, 200], False),
        (np.array([[0, 257]], np.int32), [0, 1], False),
        (np.array([[0, 200]], np.int32), [0, 200], False),
        (np.array([[-100, 0, 100]], np.float32), [0, 128, 255], True),
        (np.array([[-7, -7]], np.int32), [0, 0], True),
        (np.array([[np.nan, np.inf, 1]], np.float32), [0, 0, 255], False),
    ],
)
def test_32_bit_grey(values: Any, expected: list[int], warned: bool) -> None:
    picture = read(save(PIL.Image.fromarray(values), "TIFF"))
    assert picture.pixels[0, :, 0].tolist() == expected
    assert any("stretched" in warning for warning in picture.warnings) == warned


# --- orientation

TURNED: dict[int, Callable[[Array], Array]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


def exif(orientation: int) -> PIL.Image.Exif:
    tags = PIL.Image.Exif()
    tags[0x0112] = orientation
    return tags


@pytest.mark.parametrize("orientation", TURNED)
@pytest.mark.parametrize(
    ("kind", "options"),
    [("JPEG", {"quality": 100, "subsampling": 0}), ("PNG", {}), ("WEBP", {"lossless": True})],
)
def test_exif_orientation(orientation: int, kind: str, options: dict[str, Any]) -> None:
    data = save(quadrants(), kind, exif=exif(orientation), **options)
    expected = TURNED[orientation](quadrants())
    for source in (data, PIL.Image.open(io.BytesIO(data))):
        opened = open_image(source)
        assert opened.size == (expected.shape[1], expected.shape[0])
        picture = decode(opened)
        assert picture.original_size == opened.size
        assert np.abs(picture.pixels.astype(int) - expected).max() < 8


@pytest.mark.parametrize("orientation", TURNED)
def test_orientation_of_tiff(orientation: int) -> None:
    data = save(quadrants(), "TIFF", tiffinfo={0x0112: orientation})
    expected = TURNED[orientation](quadrants())
    for source in (data, PIL.Image.open(io.BytesIO(data))):
        opened = open_image(source)
        assert opened.size == (expected.shape[1], expected.shape[0])
        assert np.array_equal(decode(opened).pixels, expected)


def test_png_orientation_after_the_pixels() -> None:
    data = save(quadrants(), "PNG", exif=exif(6))
    at = data.index(b"eXIf") - 4
    chunk = data[at : at + 12 + int.from_bytes(data[at : at + 4], "big")]
    end = data.index(b"IEND") - 4
    moved = data[:at] + data[at + len(chunk) : end] + chunk + data[end:]
    assert np.array_equal(read(moved).pixels, TURNED[6](quadrants()))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("junk", [b"Exif\0\0junk", b"Exif\0\0II*\0\xff\xff\xff\xff", b""])
def test_damaged_exif_is_ignored(junk: bytes) -> None:
    picture = read(save(quadrants(), "JPEG", exif=junk))
    assert picture.size == (48, 32)


# --- JPEG decoded smaller


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


def test_draft_leaves_other_formats_whole() -> None:
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


@pytest.mark.parametrize("kind", SUPPORTED_FORMATS)
def test_size_is_checked_before_decoding(kind: str) -> None:
    data = SAMPLES[kind]
    with pytest.raises(ImageTooLarge, match=r"48×32 = 0\.0 megapixels, more than the limit"):
        open_image(data, max_image_pixels=48 * 32 - 1)
    open_image(data, max_image_pixels=48 * 32)


def test_size_of_arrays_and_pil_images_is_checked() -> None:
    for source in (quadrants(), PIL.Image.fromarray(quadrants())):
        with pytest.raises(ImageTooLarge):
            open_image(source, max_image_pixels=1000)


def test_a_bomb_is_refused_from_its_header() -> None:
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    body = b"IHDR" + header
    chunk = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    idat = struct.pack(">I", 1000) + b"IDAT"
    with pytest.raises(ImageTooLarge, match=r"100000×100000 = 10000\.0 megapixels"):
        open_image(b"\x89PNG\r\n\x1a\n" + chunk + idat)


def test_pillows_own_limit_does_not_interfere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 48 * 32 * 2 // 3)
    with pytest.warns(PIL.Image.DecompressionBombWarning):
        PIL.Image.open(io.BytesIO(SAMPLES["PNG"]))
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 10)
    for kind in ("JPEG", "PNG", "GIF", "BMP"):
        assert read(SAMPLES[kind]).size == (48, 32)
    with pytest.raises(ImageTooLarge, match=r"PIL\.Image\.MAX_IMAGE_PIXELS"):
        open_image(SAMPLES["WebP"])  # Pillow's reader applies it by itself
    assert PIL.Image.MAX_IMAGE_PIXELS == 10


# --- what cannot be used


def refusal(source: Any) -> str:
    with pytest.raises(ImageError) as caught:
        read(source)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = refusal(tmp_path / "none.png")
    assert missing == f"no such file: {str(tmp_path / 'none.png')!r}; check the path"
    assert "is a folder" in refusal(tmp_path)
    empty = tmp_path / "empty.jpg"
    empty.touch()
    assert "is empty (0 bytes)" in refusal(str(empty))
    assert "is empty" in refusal(b"")
    assert "cannot read" in refusal("a\0b")
    assert "cannot read" in refusal("x" * 5000)
    assert "cannot make a picture of NoneType" in refusal(None)
    assert "no pixels" in refusal(PIL.Image.new("RGB", (0, 5)))


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


@pytest.mark.parametrize("kind", SUPPORTED_FORMATS)
def test_truncated_files_are_refused(kind: str) -> None:
    data = save(
        np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8),
        "WEBP" if kind == "WebP" else kind,
    )
    for length in (12, 30, 60, len(data) // 2, len(data) * 3 // 4):
        assert "cannot decode the image as" in refusal(data[:length]) or length == 12


@pytest.mark.parametrize("kind", SUPPORTED_FORMATS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_damaged_files_decode_or_are_refused(kind: str, data: st.DataObject) -> None:
    damaged = bytearray(SAMPLES[kind])
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
