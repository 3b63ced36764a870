"""One small picture in every format, and its expected pixels."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from qwink.errors import ImageError
from qwink.inputs.images import decode, open_image
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
    "AVIF": save(quadrants(), "AVIF", quality=100, subsampling="4:4:4"),
}
FORMATS = (
    *SAMPLES,
    pytest.param(
        "HEIC",
        marks=pytest.mark.skipif(find_spec("pillow_heif") is None, reason="needs the extra heif"),
    ),
)


def sample(kind: str) -> bytes:
    """The quadrants in any supported format."""
    return heic(quadrants()) if kind == "HEIC" else SAMPLES[kind]


def heic(pixels: Array) -> bytes:
    import pillow_heif

    file = io.BytesIO()
    pillow_heif.from_pillow(PIL.Image.fromarray(pixels)).save(file, quality=-1, chroma=444)
    return file.getvalue()


def refusal(source: Any) -> str:
    with pytest.raises(ImageError) as caught:
        read(source)
    message = str(caught.value)
    assert "\n" not in message
    return message


def exif(orientation: int) -> PIL.Image.Exif:
    tags = PIL.Image.Exif()
    tags[0x0112] = orientation
    return tags
