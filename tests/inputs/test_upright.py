"""Every mode and orientation, through `open_image` and `decode`."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray
from PIL import ImageDraw, ImageFont

from qwink.inputs.images import decode, open_image
from tests.inputs.pictures import Array, exif, quadrants, read, save


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
def test_transparent_parts_become_white(mode: str) -> None:
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
        (np.array([[0, 257]], np.int32), [0, 255], True),
        (np.array([[0, 30_000]], np.int32), [0, 117], False),
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


@pytest.mark.parametrize("top", [1023, 4095, 16383])
@pytest.mark.parametrize("low", [0, 30_000])
def test_few_bits_of_sixteen_are_stretched(top: int, low: int) -> None:
    ramp = (np.linspace(0, top, 256) + low).astype(np.uint16)[None].repeat(4, 0)
    wanted = np.arange(256)
    rgb = np.repeat(ramp[..., None], 3, axis=2)
    opaque = np.concatenate([rgb, np.full_like(rgb[..., :1], 65535)], axis=2)
    tiff = save(PIL.Image.fromarray(ramp), "TIFF")
    for data in (png16(ramp, 0), tiff, png16(rgb, 2), png16(opaque, 6)):
        picture = read(data)
        assert np.abs(picture.pixels[..., 1].astype(int) - wanted).max() <= 1
        assert picture.warnings[0].endswith("they were stretched to 0..255")


def test_one_value_of_sixteen_bits_is_not_stretched() -> None:
    picture = read(png16(np.full((4, 4), 2570, np.uint16), 0))
    assert (picture.pixels.max(), picture.warnings) == (10, ())


def test_hardly_any_contrast_gives_a_warning() -> None:
    pixels = np.full((8, 8, 3), 250, np.uint8)
    assert read(save(pixels, "PNG")).warnings == ()
    pixels[2:4] = 240
    assert "almost no contrast" in read(save(pixels, "PNG")).warnings[0]


# --- transparency


def on_nothing(colour: tuple[int, int, int, int]) -> PIL.Image.Image:
    """A text of this colour; everything else is transparent."""
    image = PIL.Image.new("RGBA", (160, 48))
    ImageDraw.Draw(image).text((8, 8), "Total 42", colour, ImageFont.load_default(30))
    return image


@pytest.mark.parametrize(
    ("colour", "dark"),
    [
        ((255, 255, 255, 255), True),
        ((255, 255, 160, 255), True),
        ((255, 255, 255, 200), True),
        ((210, 210, 210, 255), True),
        ((0, 0, 0, 255), False),
        ((200, 30, 60, 255), False),
        ((120, 120, 120, 255), False),
    ],
)
def test_the_ground_keeps_the_contrast(colour: tuple[int, int, int, int], dark: bool) -> None:
    image = on_nothing(colour)
    webp = save(image, "WEBP", lossless=True)
    for source in (image, save(image, "PNG"), webp, np.asarray(image)):
        picture = read(source)
        assert picture.pixels[0, 0].tolist() == [0 if dark else 255] * 3
        assert int(picture.pixels.max()) - int(picture.pixels.min()) > 100
        assert any("transparent" in warning for warning in picture.warnings) == dark


def test_rounded_corners_stay_white() -> None:
    page = np.full((100, 100, 4), 255, np.uint8)
    page[:3, :3, 3] = 0
    assert read(PIL.Image.fromarray(page)).warnings == ()


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
