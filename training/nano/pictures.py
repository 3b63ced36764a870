"""Synthetic pictures: one printed line, or one coloured shape."""

import io
import os
import random
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from . import questions as qs
from .shapes import outline

FONTS = Path(os.environ.get("NANO_FONTS", "/usr/share/fonts/truetype"))
CLEAR_FACES = (
    "DejaVuSansMono.ttf",
    "DejaVuSansMono-Bold.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "LiberationSerif-Regular.ttf",
    "LiberationMono-Regular.ttf",
    "NotoSerif-Regular.ttf",
    "FiraCode-Regular.ttf",
    "Inconsolata.otf",
    "Caladea-Regular.ttf",
)
PLAIN_FACES = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "LiberationSans-Regular.ttf",
    "LiberationSans-Bold.ttf",
    "Carlito-Regular.ttf",
    "NotoSans-Regular.ttf",
    "OpenSans-Regular.ttf",
)
SMALL = ((64, 128), (64, 192), (64, 256))
SIZES = {
    (64, 128): 12, (64, 192): 10, (64, 256): 20, (64, 320): 4, (64, 384): 9, (96, 192): 5,
    (96, 256): 9, (96, 384): 5, (128, 256): 5, (128, 384): 3, (32, 128): 2, (32, 256): 2,
    (96, 96): 5, (128, 128): 8, (160, 160): 3, (128, 192): 4, (192, 128): 2, (192, 192): 2,
    (224, 224): 2, (160, 224): 2, (192, 256): 3, (160, 288): 1, (64, 448): 3, (64, 512): 2,
    (96, 448): 2, (96, 512): 1, (256, 192): 1, (256, 128): 1,
}  # fmt: skip
FILTERS = tuple(
    getattr(Image.Resampling, name) for name in ("BILINEAR", "BICUBIC", "BOX", "LANCZOS")
)
Colour = tuple[int, int, int]


@dataclass
class Sample:
    """A picture, a conversation of two turns, and marks: (x, y, symbol) for each symbol in it."""

    image: Image.Image
    turns: list[tuple[str, str]]
    task: str
    font_px: float = 0.0
    marks: list[tuple[float, float, str]] = field(default_factory=list)


@lru_cache(maxsize=4096)
def typeface(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font by file name, searched for in FONTS recursively. Raises FileNotFoundError."""
    found = next(FONTS.rglob(name), None)
    if found is None:
        raise FileNotFoundError(
            f"no {name} in {FONTS}; install the font packages that README.md names, "
            "or set NANO_FONTS"
        )
    return ImageFont.truetype(str(found), size)


def random_colour(rng: random.Random, low: int, high: int) -> Colour:
    """A random colour with channels between low and high."""
    return (rng.randint(low, high), rng.randint(low, high), rng.randint(low, high))


def ink_colours(rng: random.Random) -> tuple[Colour, Colour]:
    """Colours of paper and ink: dark on light, or light on dark."""
    if rng.random() < 0.3:
        paper, pen = (255, 255, 255), random_colour(rng, 0, 60)
    else:
        paper, pen = random_colour(rng, 150, 255), random_colour(rng, 0, 90)
    return (pen, paper) if rng.random() < 0.3 else (paper, pen)


def stretch(rng: random.Random, hard: bool) -> tuple[float, float]:
    """Random factors (x, y): the picture is drawn at this multiple of its final size."""
    if not hard or rng.random() < 0.5:
        return 1.0, 1.0
    scale = rng.choice((rng.uniform(0.8, 1.3), rng.uniform(1.3, 2.5)))
    return scale * rng.uniform(0.94, 1.06), scale * rng.uniform(0.94, 1.06)


def degrade(image: Image.Image, size: tuple[int, int], rng: random.Random) -> Image.Image:
    """Resize to (width, height), with random blur, JPEG artefacts, contrast and noise."""
    if rng.random() < 0.1:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.8)))
    if rng.random() < 0.2:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=rng.randint(50, 95))
        image = Image.open(file).convert("RGB")
    if image.size != size:
        image = image.resize(size, rng.choice(FILTERS))
    if rng.random() < 0.25:
        pixels = np.asarray(image, np.float32)
        if rng.random() < 0.5:
            pixels = (pixels - 128) * rng.uniform(0.75, 1.1) + 128 + rng.uniform(-12, 12)
        generator = np.random.default_rng(rng.getrandbits(32))
        noise = generator.standard_normal(pixels.shape[:2], np.float32)
        pixels = pixels + noise[..., None] * rng.uniform(1, 8)
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    return image


def line_picture(height: int, width: int, rng: random.Random, ease: float, test: bool) -> Sample:
    """A picture of one printed line. ease is the probability of an easy picture."""
    easy = rng.random() < ease
    plain = rng.random() < 0.3
    name = rng.choice(PLAIN_FACES if plain else CLEAR_FACES)
    if easy and rng.random() < ease:
        plain, name = False, "DejaVuSansMono.ttf"
    longest = 4 if easy else 12
    text = qs.line(rng, longest, plain)
    while qs.held_out(text) is not test:
        text = qs.line(rng, longest, plain)
    sx, sy = stretch(rng, not easy)
    w, h = round(width * sx), round(height * sy)
    size = rng.uniform(24, 40) if easy else rng.uniform(14, 30) if rng.random() < 0.6 else 48.0
    size = rng.uniform(30, 48) if size == 48.0 else size
    while True:
        font = typeface(name, max(8, round(size * sy)))
        left, top, right, bottom = font.getbbox(text)
        if (right - left < w - 4 and bottom - top < h - 4) or size < 13:
            break
        size *= 0.88
    if right - left >= w - 2:
        return line_picture(height, width, rng, ease, test)
    x = rng.uniform(2, max(2, w - (right - left) - 2)) - left
    y = rng.uniform(2, max(2, h - (bottom - top) - 2)) - top
    paper, pen = ink_colours(rng)
    image = Image.new("RGB", (w, h), paper)
    ImageDraw.Draw(image).text((round(x), round(y)), text, font=font, fill=pen)
    middle = (round(y) + (top + bottom) / 2) / sy
    marks = []
    for index, character in enumerate(text):
        centre = font.getlength(text[:index]) + font.getlength(character) / 2
        marks.append(((round(x) + centre) / sx, middle, character))
    image = degrade(image, (width, height), rng)
    turns = [qs.text_turn(text, rng)]
    task = "read" if turns[0][1] == text else "describe_text"
    turns.append(qs.text_turn(text, rng))
    return Sample(image, turns, task, max(8, round(size * sy)) / sy, marks)


def shape_picture(
    height: int, width: int, rng: random.Random, ease: float, test: bool, locate: float
) -> Sample:
    """A picture of one coloured shape on a background of a clearly different colour."""
    sx, sy = stretch(rng, rng.random() >= ease)
    w, h = round(width * sx), round(height * sy)
    shape, colour = rng.choice(qs.SHAPES), rng.choice(tuple(qs.COLOURS))
    fill: Colour = tuple(  # type: ignore[assignment]
        min(255, max(0, c + rng.randint(-8, 8))) for c in rng.choice(qs.COLOURS[colour])
    )
    while True:
        light = rng.random()
        paper = (255, 255, 255) if light < 0.3 else random_colour(rng, 170, 255)
        if light > 0.7:
            paper = random_colour(rng, 0, 255) if light > 0.85 else random_colour(rng, 0, 70)
        if sum(abs(a - b) for a, b in zip(paper, fill, strict=True)) > 130:
            break
    limit = min(w, h) / 2 - 2
    radius = rng.uniform(max(min(9.0, limit), limit * 0.3), limit)
    x, y = rng.uniform(radius + 1, w - radius - 1), rng.uniform(radius + 1, h - radius - 1)
    points = [(x + radius * a, y + radius * b) for a, b in outline(shape, rng.uniform(-0.2, 0.2))]
    big = Image.new("RGB", (w * 2, h * 2), paper)
    ImageDraw.Draw(big).polygon([(2 * a, 2 * b) for a, b in points], fill=fill)
    image = degrade(big.reduce(2), (width, height), rng)
    left, right = min(p[0] for p in points), max(p[0] for p in points)
    top, bottom = min(p[1] for p in points), max(p[1] for p in points)
    box = tuple(round(1000 * v) for v in (left / w, top / h, right / w, bottom / h))
    task, question, answer = qs.object_turn(shape, colour, box, rng, locate)  # type: ignore[arg-type]
    turns = [(question, answer)]
    turns.append(qs.object_turn(shape, colour, box, rng, 0)[1:])  # type: ignore[arg-type]
    marks = [(x / sx, y / sy, shape), (x / sx, y / sy, colour)]
    return Sample(image, turns, task, 0.0, marks)


def sample(
    size: tuple[int, int], rng: random.Random, ease: float = 0.0, locate: float = 0.0,
    test: bool = False,
) -> Sample:  # fmt: skip
    """One random sample for a picture of size (height, width)."""
    height, width = size
    objects = 0.1 if width >= 2 * height else 0.55
    if height >= 64 and rng.random() < objects:
        return shape_picture(height, width, rng, ease, test, locate)
    return line_picture(height, width, rng, ease, test)
