"""A sheet to draw on, with text, paragraphs and shapes.

Text is in Pillow's font, so that pictures do not depend on the fonts of a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont

INK, GREY, RULE = "#1b1b1f", "#6a6a72", "#c9c9d0"

TEXT = (
    "The ferry leaves the harbour at a quarter past seven and reaches the island before noon. "
    "Bring warm clothes, for the deck is windy even in June, and something to read. "
    "Tickets are checked on board; children under six travel free of charge. "
    "The café on the lower deck serves tea, soup and sandwiches until an hour before landing. "
    "Bicycles are carried at the stern, where a steward helps to tie them down. "
    "In heavy weather the crossing may take an hour longer, which the captain announces early. "
)


def font(size: float) -> PIL.ImageFont.FreeTypeFont:
    """Pillow's face in `size` pixels."""
    face = PIL.ImageFont.load_default(size)
    assert isinstance(face, PIL.ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return face


class Sheet:
    """A picture being drawn. Positions and sizes are in units of `scale` pixels."""

    def __init__(self, width: int, height: int, colour: str = "white", scale: float = 1) -> None:
        self.width, self.height, self.scale = width, height, scale
        size = round(width * scale), round(height * scale)
        self.image = PIL.Image.new("RGB", size, colour)
        self._draw = PIL.ImageDraw.Draw(self.image)

    def text(
        self, x: float, y: float, text: str, size: float, colour: str = INK, anchor: str = "la"
    ) -> None:
        """One line of text; `anchor` as Pillow's, by default left and ascender."""
        place = x * self.scale, y * self.scale
        self._draw.text(place, text, colour, font(size * self.scale), anchor)

    def paragraph(
        self, x: float, y: float, width: float, text: str, size: float, colour: str = INK
    ) -> float:
        """Text broken into lines that fit `width`. Returns the y below it."""
        for line in _lines(text, width, size):
            self.text(x, y, line, size, colour)
            y += 1.45 * size
        return y

    def box(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        fill: str | None = None,
        outline: str | None = None,
        radius: float = 0,
    ) -> None:
        """A rectangle, its corners rounded by `radius`."""
        corners = [side * self.scale for side in (left, top, right, bottom)]
        width = max(1, round(self.scale))
        self._draw.rounded_rectangle(corners, radius * self.scale, fill, outline, width)

    def disc(self, x: float, y: float, radius: float, colour: str) -> None:
        """A filled circle around (x, y)."""
        self._draw.circle((x * self.scale, y * self.scale), radius * self.scale, colour)

    def slice(
        self, x: float, y: float, radius: float, start: float, end: float, colour: str
    ) -> None:
        """A piece of a pie around (x, y); angles in degrees, clockwise from three o'clock."""
        corners = [side * self.scale for side in (x - radius, y - radius, x + radius, y + radius)]
        self._draw.pieslice(corners, start, end, colour)

    def line(
        self, points: Sequence[tuple[float, float]], colour: str = RULE, width: float = 1
    ) -> None:
        """Straight lines from point to point."""
        scaled = [(x * self.scale, y * self.scale) for x, y in points]
        self._draw.line(scaled, colour, max(1, round(width * self.scale)), joint="curve")


def _lines(text: str, width: float, size: float) -> Iterator[str]:
    face = font(size)
    line = ""
    for word in text.split():
        longer = f"{line} {word}".lstrip()
        if line and face.getlength(longer) > width:
            yield line
            line = word
        else:
            line = longer
    yield line
