"""The pictures of a comparison: the user's, or a small built-in set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL.Image
from PIL import ImageDraw, ImageFont

from qwink.errors import ImageError
from qwink.inputs.formats import SUFFIXES, SUPPORTED_FORMATS


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A picture and a question; None: the caller chooses the question."""

    name: str
    image: Path | PIL.Image.Image
    question: str | None = None


def samples_in(folder: Path) -> list[Sample]:
    """The pictures of a folder, by name; not those of folders inside.

    Raises ImageError if there is no such folder, or no picture in it.
    """
    if not folder.is_dir():
        reason = "is a file" if folder.exists() else "no such folder"
        raise ImageError(f"{folder}: {reason}; give a folder with pictures")
    suffixes = {suffix for names in SUFFIXES.values() for suffix in names}
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
    if not paths:
        known = ", ".join(SUPPORTED_FORMATS)
        raise ImageError(f"{folder}: no pictures in it; give a folder with files of {known}")
    return [Sample(path.name, path) for path in paths]


def built_in_samples() -> list[Sample]:
    """Twelve pictures, drawn: printed lines, a page, a table, a chart, shapes, a soft scene."""
    read, describe = "What does it say?", "Describe this picture."
    lines = {
        "line-total": "Total 42.50",
        "line-date": "2031-07-19",
        "line-name": "Nora Weiss",
        "line-code": "QX-7081-B",
        "line-sign": "EXIT",
    }
    pictures = [Sample(name, _line(text), read) for name, text in lines.items()]
    pictures += [
        Sample("page", _page(), "Read all the text in the picture."),
        Sample("table", _table(), "Convert this table to Markdown."),
        Sample("chart", _chart(), "Which bar is the highest?"),
        Sample("circle", _shape("red", ImageDraw.ImageDraw.ellipse), "What shape is it?"),
        Sample("square", _shape("blue", ImageDraw.ImageDraw.rectangle), "What colour is it?"),
        Sample("circle-green", _shape("green", ImageDraw.ImageDraw.ellipse), describe),
        Sample("scene", _scene(), describe),
    ]
    return pictures


def _blank(width: int, height: int) -> tuple[PIL.Image.Image, ImageDraw.ImageDraw]:
    image = PIL.Image.new("RGB", (width, height), "white")
    return image, ImageDraw.Draw(image)


def _line(text: str) -> PIL.Image.Image:
    image, draw = _blank(256, 64)
    draw.text((12, 14), text, "black", ImageFont.load_default(30))
    return image


def _page() -> PIL.Image.Image:
    image, draw = _blank(448, 448)
    draw.text((24, 20), "Minutes of the garden club", "black", ImageFont.load_default(24))
    font = ImageFont.load_default(17)
    text = (
        "Present: A. Okafor, L. Brandt, M. Sato",
        "1. The pond freezes; pump off by 1 November.",
        "2. Seeds: 14 bags at 3.20 each, 44.80 in all.",
        "3. Mr Brandt mends the fence along the lane.",
        "4. Key to the shed: now with Ms Sato.",
        "Next meeting: Tuesday 6 March, 18:30.",
    )
    for row, line in enumerate(text):
        draw.text((24, 80 + 48 * row), line, "black", font)
    return image


def _table() -> PIL.Image.Image:
    image, draw = _blank(448, 320)
    font = ImageFont.load_default(20)
    rows = (("city", "area", "people"), ("Lund", "26", "94 393"), ("Graz", "128", "303 270"))
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            box = (30 + 130 * x, 40 + 80 * y, 160 + 130 * x, 120 + 80 * y)
            draw.rectangle(box, outline="black", width=2)
            draw.text((box[0] + 12, box[1] + 26), cell, "black", font)
    return image


def _chart() -> PIL.Image.Image:
    image, draw = _blank(448, 336)
    font = ImageFont.load_default(18)
    bars = (("2019", 90), ("2020", 60), ("2021", 150), ("2022", 240), ("2023", 180))
    for index, (year, height) in enumerate(bars):
        left = 40 + 78 * index
        draw.rectangle((left, 290 - height, left + 50, 290), fill="steelblue")
        draw.text((left + 4, 298), year, "black", font)
    draw.line((30, 290, 430, 290), "black", 2)
    return image


def _shape(colour: str, draw_shape: Callable[..., None]) -> PIL.Image.Image:
    image, draw = _blank(128, 128)
    draw_shape(draw, (28, 28, 100, 100), fill=colour)
    return image


def _scene() -> PIL.Image.Image:
    """Sky, hills and sun with soft edges and noise, similar to a photograph."""
    height, width = 336, 448
    y, x = np.mgrid[:height, :width] / np.array([height, width])[:, None, None]
    sky = np.stack([0.35 + 0.4 * y, 0.55 + 0.3 * y, 0.95 - 0.1 * y], -1)
    hills = np.stack([0.2 + 0.2 * x, 0.45 - 0.1 * x, 0.15 + 0.1 * y], -1)
    ground = y > 0.6 + 0.1 * np.sin(7 * x) + 0.04 * np.sin(23 * x)
    scene = np.where(ground[..., None], hills, sky)
    sun = np.exp(-(((x - 0.75) * 4 / 3) ** 2 + (y - 0.22) ** 2) / 0.006)[..., None]
    scene = scene * (1 - sun) + np.array([1.0, 0.93, 0.6]) * sun
    scene += np.random.default_rng(5).normal(0, 0.02, scene.shape)
    return PIL.Image.fromarray((np.clip(scene, 0, 1) * 255).astype(np.uint8))
