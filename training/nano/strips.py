"""Training pictures of strips: pages of a few lines, cut as qwink cuts pages for nano."""

import random
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageDraw

from qwink.inputs.strips import Cut, Strip, cut_into_lines, shown

from . import faces, varied
from . import questions as qs
from .faces import typeface
from .pictures import Sample, ink_colours

MOST_PIXELS = 50_176  # of a strip, as in the preprocessor's configuration
WIDEST = 320
Mark = tuple[float, float, str]


def strip_samples(rng: random.Random, test: bool = False, unseen: bool = False) -> Iterator[Sample]:
    """Strips of endless pages, 32 pixels high; `test`: of held-out lines."""
    while True:
        image, marks, size = page(rng, test, unseen)
        cut = cut_into_lines(np.asarray(image), MOST_PIXELS)
        if cut.angle or len(cut.strips) < len(marks):  # turned, or lines grew together
            continue
        for strip in cut.strips:
            if strip.size[0] <= WIDEST and (made := sample(cut, strip, marks, size, rng)):
                yield made


def page(
    rng: random.Random, test: bool, unseen: bool
) -> tuple[Image.Image, list[list[Mark]], float]:
    """A page of two to six lines in one face; of each line its characters (x, y, character)."""
    plain = rng.random() < 0.5
    size = rng.uniform(13, 22) if rng.random() < 0.5 else rng.uniform(22, 44)
    font = typeface(faces.pick(rng, plain=plain, unseen=unseen), round(size))
    paper, pen = ink_colours(rng)
    width, spacing = round(size * rng.uniform(10, 24)), rng.uniform(1.35, 2.2)
    image = Image.new("RGB", (width, 1), paper)
    lines: list[list[Mark]] = []
    texts = []
    for _ in range(rng.randint(2, 6)):
        text = varied.line(rng, rng.choice((12, 24, 40)), plain)
        while qs.held_out(text) is not test:
            text = varied.line(rng, rng.choice((12, 24, 40)), plain)
        while font.getlength(text) > width - size and " " in text:
            text = text[: text.rfind(" ")]
        if font.getlength(text) <= width - size:
            texts.append(text)
    height = round(size * spacing * len(texts) + size)
    image = Image.new("RGB", (width, height), paper)
    draw = ImageDraw.Draw(image)
    for number, text in enumerate(texts):
        y = round(size / 2 + size * spacing * number)
        room = width - size - font.getlength(text)
        x = round(size / 2 + (rng.uniform(0, room) if rng.random() < 0.3 else 0))
        # The last word may stand apart, as prices do.
        start = text.rfind(" ") + 1
        apart = round(size / 2 + room - x) if start and rng.random() < 0.3 else 0
        draw.text((x, y), text[:start] if apart else text, pen, font)
        if apart:
            draw.text((x + apart + font.getlength(text[:start]), y), text[start:], pen, font)
        top, bottom = font.getbbox(text)[1::2]
        lines.append(
            [
                (
                    x
                    + font.getlength(text[:index])
                    + font.getlength(character) / 2
                    + (apart if index >= start else 0),
                    y + (top + bottom) / 2,
                    character,
                )
                for index, character in enumerate(text)
            ]
        )
    return varied.degrade(image, image.size, rng), lines, size


def sample(
    cut: Cut, strip: Strip, lines: list[list[Mark]], size: float, rng: random.Random
) -> Sample | None:
    """A strip with the characters in it, or None if it has none or those of several lines."""
    left, top, right, bottom = strip.box
    inside = [
        [mark for mark in line if left <= mark[0] < right]
        for line in lines
        if top < line[0][1] < bottom
    ]
    if len(inside) != 1 or not (text := "".join(mark[2] for mark in inside[0]).strip()):
        return None
    width, height = strip.size
    scale = min(width / (right - left), height / (bottom - top))
    x0, y0 = (width - scale * (right - left)) / 2, (height - scale * (bottom - top)) / 2
    marks = [(x0 + scale * (x - left), y0 + scale * (y - top), mark) for x, y, mark in inside[0]]
    turn = (rng.choice(qs.READ), text)
    return Sample(Image.fromarray(shown(cut, strip)), [turn, turn], "read", size * scale, marks)
