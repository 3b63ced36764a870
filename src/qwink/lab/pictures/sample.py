"""Single pictures to measure with, and variants of a picture."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw

SAMPLE_SIZE = (1920, 1440)  # 2.8 megapixels, as a phone's small setting
_MARK = 32  # pixels


def sample_picture() -> Image.Image:
    """A scene with a sky, shapes and lines of text; the same each time."""
    width, height = SAMPLE_SIZE
    across, down = np.linspace(0, 1, width), np.linspace(0, 1, height)[:, None]
    grain = np.random.default_rng(0).normal(0, 4, (height, width, 3))
    channels = (90 + 120 * down + 0 * across, 120 + 80 * across * down, 220 - 120 * down * across)
    pixels = np.stack(np.broadcast_arrays(*channels), axis=-1) + grain
    picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((1300, 120, 1620, 440), fill=(250, 220, 90))
    draw.rectangle((200, 620, 900, 1240), fill=(235, 235, 228), outline=(60, 60, 60), width=6)
    for line in range(9):
        draw.text((240, 660 + 60 * line), f"Item {line + 1}    {3.5 * line + 1:.2f}", (20, 20, 20))
    draw.polygon(((1000, 1240), (1350, 560), (1700, 1240)), fill=(170, 60, 50))
    return picture


def variant(picture: Image.Image, number: int) -> Image.Image:
    """The picture with a mark in its corner made from `number`, so that no cache has it."""
    colours = np.random.default_rng(number).integers(0, 256, (4, 4, 3), np.uint8)
    mark = Image.fromarray(colours).resize((_MARK, _MARK), Image.Resampling.NEAREST)
    marked = picture.convert("RGB")
    marked.paste(mark, (0, 0))
    return marked


def clouds(seed: int, side: int) -> Image.Image:
    """Smooth random colours, side × side pixels; another picture for each seed."""
    coarse = np.random.default_rng(seed).integers(0, 256, (14, 14, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def as_jpeg(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()
