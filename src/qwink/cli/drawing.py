"""`qwink ask --draw`: the picture with what the answer located, each box and point with its label.

A label stands above its box or, where there is no room, in it. Labels that fit nowhere, as in a
strip of 20 pixels, stand in a list below the picture. Where no font has a label's letters, the
number of the box stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont
from numpy.typing import NDArray
from PIL.ImageFont import FreeTypeFont

from qwink.errors import OptionError
from qwink.inputs.containers import is_video
from qwink.inputs.data_urls import is_data_url, unpack_data_url
from qwink.inputs.images import decode, open_image
from qwink.runtime.boxes import FULL
from qwink.types import Box, Point

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}

# Colours that differ from each other for people with any colour vision (Okabe and Ito).
_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
# Fonts with many scripts that systems have; the built-in font has Latin letters only.
_FONTS = (
    *("DejaVuSans.ttf", "NotoSansCJK-Regular.ttc", "NotoSansSC-Regular.otf", "wqy-zenhei.ttc"),
    *("wqy-microhei.ttc", "PingFang.ttc", "Hiragino Sans GB.ttc", "Arial Unicode.ttf"),
    *("msyh.ttc", "arial.ttf"),
)
_MISSING = "\U0010ffff"  # no font has it, so it looks like all letters that a font lacks
_MAX_LABEL = 80  # characters
_LIST_WIDTH = 320  # pixels: the least width of a picture with a list below

Rectangle = tuple[int, int, int, int]


def check_output(path: Path, sources: Sequence[str]) -> None:
    """Raises OptionError unless a drawing of one picture can be written to `path`."""
    if len(sources) != 1:
        raise OptionError(f"--draw takes one picture, and there are {len(sources)}; give one")
    if Path(sources[0]).is_file() and is_video(sources[0]):
        raise OptionError("--draw takes one picture, and this is a video; give a picture")
    if path.suffix.lower() not in FORMATS:
        raise OptionError(f"--draw {path}: the name must end with {', '.join(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"--draw {path}: there is no such folder; create it")
    if path.exists() and Path(sources[0]).exists() and path.samefile(sources[0]):
        raise OptionError(f"--draw {path} would overwrite the picture; choose another name")


def save_drawing(
    source: str | bytes, boxes: Sequence[Box], points: Sequence[Point], path: Path
) -> int:
    """Draw on a picture and write it. Returns how many labels are numbers for want of a font.

    Raises ImageError, OptionError.
    """
    if isinstance(source, str) and is_data_url(source):
        source = unpack_data_url(source)
    drawing = Drawing(decode(open_image(source)).pixels)
    for box in boxes:
        drawing.add_box(box)
    for point in points:
        drawing.add_point(point)
    try:
        drawing.finished().save(path, FORMATS[path.suffix.lower()])
    except OSError as error:
        raise OptionError(f"--draw {path} cannot be written ({error.strerror or error})") from None
    return drawing.num_numbers


class Drawing:
    """A picture [H, W, 3] on which boxes and points are drawn."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self._image = PIL.Image.fromarray(pixels)
        self._draw = PIL.ImageDraw.Draw(self._image)
        longest = max(self._image.size)
        self._size = min(max(longest // 50, 14), 48)  # of the letters, in pixels
        self._line = max(2, longest // 500)
        self._taken: list[Rectangle] = []  # by labels
        self._listed: list[tuple[str, str]] = []  # colour and label of those without room
        self._number = 0
        self.num_numbers = 0

    def add_box(self, box: Box) -> None:
        left, top, right, bottom = self._pixels(box.bbox_2d)
        colour = self._next_colour()
        line = min(self._line, max(1, min(self._image.size) // 10))
        self._draw.rectangle((left, top, max(left, right), max(top, bottom)), None, colour, line)
        self._label(box.label, colour, (left, top, right, bottom))

    def add_point(self, point: Point) -> None:
        x, y = self._pixels(point.point_2d)
        colour = self._next_colour()
        radius = min(2 * self._line + 1, max(1, min(self._image.size) // 8))
        circle = (x - radius, y - radius, x + radius, y + radius)
        self._draw.ellipse(circle, colour, "white")
        self._label(point.label, colour, circle)

    def finished(self) -> PIL.Image.Image:
        """The picture, with the list of labels below if some had no room."""
        if not self._listed:
            return self._image
        width, height = self._image.size
        size = min(self._size, 20)
        row = size * 3 // 2
        whole = PIL.Image.new(
            "RGB", (max(width, _LIST_WIDTH), height + row * len(self._listed) + row // 2), "white"
        )
        whole.paste(self._image)
        draw = PIL.ImageDraw.Draw(whole)
        for index, (colour, label) in enumerate(self._listed):
            top = height + row // 4 + index * row
            draw.rectangle((4, top + 3, 4 + size, top + row - 3), colour)
            font = _font_for(label, size)
            text = _shortened(label, font, whole.width - 2 * size - 4)
            draw.text((size + 12, top + row // 2), text, "black", font, anchor="lm")
        return whole

    def _pixels(self, numbers: Sequence[float]) -> list[int]:
        """Alternating x and y, in thousandths, as pixels within the picture."""
        return [
            min(int(number / FULL * self._image.size[i % 2]), self._image.size[i % 2] - 1)
            for i, number in enumerate(numbers)
        ]

    def _next_colour(self) -> str:
        self._number += 1
        return _COLOURS[(self._number - 1) % len(_COLOURS)]

    def _label(self, label: str, colour: str, around: Rectangle) -> None:
        label = " ".join("".join(c if c.isprintable() else " " for c in label).split())
        if not label:
            return
        if len(label) > _MAX_LABEL:
            label = label[: _MAX_LABEL - 1] + "…"
        if not _has(_font_for(label, self._size), label):
            label = str(self._number)
            self.num_numbers += 1
        font = _font_for(label, self._size)
        place = self._room(label, font, around)
        if place is None:
            number = str(self._number)
            self._listed.append((colour, number if label == number else f"{number}. {label}"))
            return
        self._taken.append(place)
        self._draw.rectangle(place, colour)
        middle = (place[0] + 4, (place[1] + place[3]) // 2)
        self._draw.text(middle, label, "white", font, anchor="lm")

    def _room(self, label: str, font: FreeTypeFont, around: Rectangle) -> Rectangle | None:
        """Where a label can stand: above, inside at the top, or below; None if nowhere."""
        width, height = self._image.size
        wide, high = round(font.getlength(label)) + 8, self._size * 4 // 3
        if wide > width or 3 * high > height:
            return None
        left = min(around[0], width - wide - 1)
        for top in (around[1] - high, around[1], around[3] + 1):
            place = (left, top, left + wide, top + high)
            within = top >= 0 and place[3] < height
            if within and not any(_overlap(place, other) for other in self._taken):
                return place
        return None


def _overlap(one: Rectangle, two: Rectangle) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def _shortened(text: str, font: FreeTypeFont, width: int) -> str:
    while len(text) > 1 and font.getlength(text) > width:
        text = text[:-2] + "…"
    return text


@cache
def _fonts(size: int) -> tuple[FreeTypeFont, ...]:
    """The built-in font, and those of `_FONTS` that this machine has."""
    default = PIL.ImageFont.load_default(size)
    assert isinstance(default, FreeTypeFont), "Pillow's wheels are built with FreeType"
    found = [default]
    for name in _FONTS:
        try:
            found.append(PIL.ImageFont.truetype(name, size))
        except OSError:
            continue
    return tuple(found)


def _font_for(text: str, size: int) -> FreeTypeFont:
    """The first font that has all letters of a text, or the built-in one."""
    fonts = _fonts(size)
    return next((font for font in fonts if _has(font, text)), fonts[0])


def _has(font: FreeTypeFont, text: str) -> bool:
    missing = bytes(font.getmask(_MISSING))
    return all(c.isspace() or bytes(font.getmask(c)) != missing for c in text)
