"""Sixty pages with known lines in reading order, to measure how pages are cut.

Half of them are clean: receipts, invoices, forms, two columns, tables, slides. The others are code,
lines of square and of joined signs, as Chinese and Arabic have them, turned scans, stamps over
text, and photographs of paper. Signs are drawn, not set in a font.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFilter

from qwink.lab.pictures.sketch import GREY, INK, RULE, TEXT, font

PER_KIND = 5
WORDS = TEXT.replace(",", "").replace(".", "").replace(";", "").split()
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class KnownLine:
    """A line of a page: its text, and where the middle of its letters runs, from left to right.

    `height` is that of its letters, in pixels.
    """

    text: str
    path: tuple[Point, ...]
    height: float


@dataclass(slots=True, eq=False)
class KnownPage:
    """A page. `lines` are in reading order."""

    name: str
    kind: str
    clean: bool
    image: PIL.Image.Image
    lines: list[KnownLine] = field(default_factory=list)


class _Writer:
    """Draws lines of text and keeps where they are."""

    def __init__(self, width: int, height: int, ground: str = "white") -> None:
        self.image = PIL.Image.new("RGB", (width, height), ground)
        self.draw = PIL.ImageDraw.Draw(self.image)
        self.lines: list[KnownLine] = []

    def write(self, parts: list[tuple[float, str, str]], y: float, size: float, ink: str) -> None:
        """One line: parts are x, text and Pillow's anchor without its vertical part."""
        face = font(size)
        path: list[Point] = []
        middle = y + 0.62 * size
        for x, text, anchor in parts:
            self.draw.text((x, y), text, ink, face, anchor + "a")
            length = face.getlength(text)
            left = x if anchor == "l" else x - length if anchor == "r" else x - length / 2
            path.append((left + length / 2, middle))
            if length > 2 * size:
                path += [(left + size / 2, middle), (left + length - size / 2, middle)]
        text = " ".join(text for _, text, _ in parts)
        self.lines.append(KnownLine(text, tuple(sorted(path)), 0.5 * size))

    def paragraph(
        self, x: float, y: float, width: float, text: str, size: float, ink: str = INK
    ) -> float:
        """Text broken to fit. Returns the y below it."""
        face, line = font(size), ""
        for word in [*text.split(), ""]:
            longer = f"{line} {word}".strip()
            if line and (not word or face.getlength(longer) > width):
                self.write([(x, line, "l")], y, size, ink)
                y += 1.4 * size
                line = word
            else:
                line = longer
        return y

    def signs(self, x: float, y: float, count: int, size: float, joined: bool, seed: int) -> None:
        """A line of drawn signs: square ones, or ones that are joined by a stroke below."""
        rng = random.Random(seed)
        right = x
        for _ in range(count):
            if not joined:
                for _ in range(rng.randint(3, 6)):
                    a, b = rng.uniform(0, size * 0.9), rng.uniform(0, size * 0.9)
                    if rng.random() < 0.5:
                        self.draw.line([(right, y + a), (right + size * 0.85, y + a)], INK, 2)
                    else:
                        self.draw.line([(right + b, y), (right + b, y + size * 0.9)], INK, 2)
                right += size * 1.08
                continue
            width = size * rng.uniform(0.5, 1.4)
            base = y + size * rng.uniform(0.64, 0.76)
            self.draw.line([(right, base), (right + width, base)], INK, 3)
            top = y + size * rng.uniform(0.2, 0.6)
            self.draw.arc([right, top, right + width, y + size], 180, 360, INK, 3)
            if rng.random() < 0.5:
                dot = y + size * rng.choice((0.08, 0.95))
                self.draw.ellipse([right + width / 2, dot, right + width / 2 + 4, dot + 4], INK)
            right += width + (size * 0.4 if rng.random() < 0.2 else 0)
        middle = y + size * (0.6 if joined else 0.45)
        points = [(x + size / 2, middle), ((x + right) / 2, middle), (right - size, middle)]
        self.lines.append(KnownLine(f"{count} signs", tuple(points), 0.4 * size))


def _phrase(rng: random.Random, least: int, most: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def _receipt(rng: random.Random) -> _Writer:
    size, width = rng.choice((16, 20, 24)), 420
    page = _Writer(width, 1000, rng.choice(("white", "#f4efe2")))
    y = 24.0
    for text in ("HARBOUR MARKET", "Quay Street 17", f"Receipt {rng.randint(1000, 9999)}"):
        page.write([(width / 2, text, "m")], y, size, INK)
        y += 1.6 * size
    page.draw.line([(20, y), (width - 20, y)], INK, 2)
    y += 0.8 * size
    for _ in range(rng.randint(5, 14)):
        price = f"{rng.randint(0, 60)}.{rng.randint(0, 99):02}"
        item = _phrase(rng, 1, 2)
        page.write([(20, item, "l"), (width - 20, price, "r")], y, size, INK)
        y += rng.choice((1.35, 1.5)) * size
    page.draw.line([(20, y), (width - 20, y)], INK, 1)
    y += 0.6 * size
    page.write([(20, "TOTAL", "l"), (width - 20, "142.50", "r")], y, 1.4 * size, INK)
    y += 2.5 * size
    page.write([(width / 2, "Thank you, come again", "m")], y, size, INK)
    page.image = page.image.crop((0, 0, width, round(y + 3 * size)))
    return page


def _invoice(rng: random.Random) -> _Writer:
    page = _Writer(1240, 1754)
    page.draw.rectangle([0, 0, 1240, 170], "#22446b")
    page.write(
        [(110, "INVOICE", "l"), (1130, f"No. {rng.randint(100, 999)}", "r")], 60, 44, "white"
    )
    y = page.paragraph(110, 240, 500, "To: Nordlys Hotel, " + _phrase(rng, 6, 14), 26) + 60
    columns = (110, "l"), (700, "r"), (900, "r"), (1130, "r")
    head = ("Item", "Quantity", "Price", "Amount")
    page.write([(x, text, a) for (x, a), text in zip(columns, head, strict=True)], y, 24, GREY)
    page.draw.line([(110, y + 42), (1130, y + 42)], INK, 2)
    for _ in range(rng.randint(4, 12)):
        y += 62
        cells = (_phrase(rng, 1, 3), str(rng.randint(1, 9)), "12.50", f"{rng.randint(9, 99)}.00")
        page.write([(x, text, a) for (x, a), text in zip(columns, cells, strict=True)], y, 26, INK)
        page.draw.line([(110, y + 46), (1130, y + 46)], RULE, 1)
    page.write([(700, "Total", "r"), (1130, "812.00", "r")], y + 100, 34, INK)
    page.paragraph(110, 1560, 1000, "Payable within 30 days. " + _phrase(rng, 6, 12), 22, GREY)
    return page


def _form(rng: random.Random) -> _Writer:
    page = _Writer(1000, 1300, "#fbfbf4")
    page.write([(80, "Application for a berth", "l")], 60, 40, INK)
    y = 170.0
    for label in ("Name", "Boat", "Length", "Arrival", "Harbour", "Telephone", "Remarks"):
        page.write([(80, label, "l")], y, 22, GREY)
        page.draw.rectangle([80, y + 32, 920, y + 92], None, "#9a9aa2", 2)
        page.write([(96, _phrase(rng, 1, 5), "l")], y + 44, 28, INK)
        y += 140
    return page


def _two_columns(rng: random.Random) -> _Writer:
    page = _Writer(1240, 1754)
    page.write([(110, _phrase(rng, 3, 4).capitalize(), "l")], 80, 52, INK)
    page.paragraph(110, 180, 1020, _phrase(rng, 20, 30), 26)
    for x in (110, 650):
        y = 330.0
        for _ in range(rng.randint(2, 3)):
            y = page.paragraph(x, y, 480, _phrase(rng, 40, 70), 24) + 24
            if y > 1400:
                break
    return page


def _table(rng: random.Random) -> _Writer:
    page = _Writer(1100, 900)
    page.write([(60, "Departures", "l")], 40, 40, INK)
    xs, y = (60, 330, 600, 850), 130.0
    rows = rng.randint(6, 11)
    for number in range(rows):
        cells = ("Ferry", "Harbour", "Time", "Pier") if number == 0 else (
            _phrase(rng, 1, 1), _phrase(rng, 1, 1), f"{rng.randint(6, 22):02}:15", f"{number}"
        )  # fmt: skip
        page.write([(x + 12, c, "l") for x, c in zip(xs, cells, strict=True)], y + 14, 26, INK)
        y += 60
    for number in range(rows + 1):
        page.draw.line([(60, 130 + 60 * number), (1040, 130 + 60 * number)], GREY, 2)
    for x in (*xs, 1040):
        page.draw.line([(x, 130), (x, y)], GREY, 2)
    return page


def _slide(rng: random.Random) -> _Writer:
    page = _Writer(1280, 720, rng.choice(("#10243f", "#243b2e", "#301c3a")))
    page.write([(90, _phrase(rng, 2, 4).capitalize(), "l")], 70, 60, "white")
    y = 210.0
    for _ in range(rng.randint(3, 5)):
        page.write([(110, "• " + _phrase(rng, 3, 6), "l")], y, 38, "#e8ecf4")
        y += 84
    page.write([(1190, "7", "r")], 650, 22, "#8f9db5")
    return page


def _code(rng: random.Random) -> _Writer:
    page = _Writer(1000, 900, "#1e1e24")
    y, depth = 30.0, 0
    for number in range(28):
        depth = max(0, min(4, depth + rng.choice((-1, 0, 0, 1))))
        text = rng.choice(("return {}", "{} = {}(x)", "for {} in {}:", "if {} > 3:", "# {} {}"))
        line = text.format(rng.choice(WORDS), rng.choice(WORDS))
        if rng.random() < 0.9:
            place = [(70.0 + 40 * depth, line, "l")]
            page.write([(20, str(number + 1), "l"), *place], y, 20, "#d8dbe2")
        y += 30
    return page


def _square_signs(rng: random.Random) -> _Writer:
    page, y = _Writer(1000, 1200), 60.0
    for number in range(20):
        page.signs(70, y, rng.randint(8, 26), 30, False, rng.randrange(1 << 30))
        y += 46 if number % 5 != 4 else 80
    return page


def _joined_signs(rng: random.Random) -> _Writer:
    page, y = _Writer(1000, 1200), 60.0
    for number in range(16):
        page.signs(70, y, rng.randint(10, 24), 34, True, rng.randrange(1 << 30))
        y += 60 if number % 4 != 3 else 90
    return page


def _text_page(rng: random.Random) -> _Writer:
    page, y = _Writer(1000, 1300), 80.0
    while y < 1000:
        y = page.paragraph(90, y, 820, _phrase(rng, 20, 50), 26) + 30
    return page


def _turned(rng: random.Random) -> _Writer:
    page = _text_page(rng)
    angle = rng.choice((-1, 1)) * rng.uniform(0.6, 2.4)
    a, b = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x0, y0 = page.image.width / 2, page.image.height / 2

    def turn(point: Point) -> Point:
        x, y = point[0] - x0, point[1] - y0
        return x0 + x * a + y * b, y0 - x * b + y * a

    page.image = page.image.rotate(angle, PIL.Image.Resampling.BICUBIC, fillcolor="white")
    page.lines = [_moved(line, turn) for line in page.lines]
    return page


def _stamped(rng: random.Random) -> _Writer:
    page = _text_page(rng)
    for _ in range(2):
        x, y = rng.uniform(150, 600), rng.uniform(150, 800)
        colour = rng.choice(("#c0392b", "#2b4fc0"))
        page.draw.ellipse([x, y, x + 230, y + 230], None, colour, 6)
        page.draw.text((x + 115, y + 115), "RECEIVED", colour, font(34), "mm")
    return page


def _photographed(rng: random.Random) -> _Writer:
    """Paper on a table: small perspective, light from one side, blur and noise."""
    page = _text_page(rng)
    width, height = page.image.size
    shift = [rng.uniform(0, 0.012) for _ in range(4)]
    corners = [
        (-shift[0] * width, -shift[0] * height),
        (width * (1 + shift[1]), -shift[1] * height),
        (width * (1 + shift[2]), height * (1 + shift[2])),
        (-shift[3] * width, height * (1 + shift[3])),
    ]  # where the picture's corners are in the page
    square = [(0.0, 0.0), (width, 0.0), (width, height), (0.0, height)]
    to_page = _homography(square, corners)
    to_picture = _homography(corners, square)
    page.image = page.image.transform(
        page.image.size,
        PIL.Image.Transform.PERSPECTIVE,
        tuple(to_page[:8]),
        PIL.Image.Resampling.BICUBIC,
        fillcolor="#7a6a58",
    )

    def move(point: Point) -> Point:
        a, b, c, d, e, f, g, h = to_picture[:8]
        x, y = point
        w = g * x + h * y + 1
        return (a * x + b * y + c) / w, (d * x + e * y + f) / w

    page.lines = [_moved(line, move) for line in page.lines]
    pixels = np.asarray(page.image.filter(PIL.ImageFilter.GaussianBlur(0.8)), np.float32)
    light = np.linspace(1.0, rng.uniform(0.6, 0.85), width, dtype=np.float32)
    noise = np.random.default_rng(rng.randrange(1 << 30)).normal(0, 4, pixels.shape)
    page.image = PIL.Image.fromarray(
        (pixels * light[None, :, None] + noise).clip(0, 255).astype(np.uint8)
    )
    return page


def _homography(source: list[Point], target: list[Point]) -> list[float]:
    """The eight coefficients that map four points to four others, as Pillow takes them."""
    rows, values = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return [float(value) for value in np.linalg.solve(np.array(rows), np.array(values))]


def _moved(line: KnownLine, move: Callable[[Point], Point]) -> KnownLine:
    return KnownLine(line.text, tuple(move(point) for point in line.path), line.height)


MAKERS: dict[str, tuple[bool, Callable[[random.Random], _Writer]]] = {
    "receipt": (True, _receipt),
    "invoice": (True, _invoice),
    "form": (True, _form),
    "two columns": (True, _two_columns),
    "table": (True, _table),
    "slide": (True, _slide),
    "code": (False, _code),
    "square signs": (False, _square_signs),
    "joined signs": (False, _joined_signs),
    "turned scan": (False, _turned),
    "stamps": (False, _stamped),
    "photograph": (False, _photographed),
}


def pages(kind: str | None = None) -> Iterator[KnownPage]:
    """All pages, or those of a kind; the same each time."""
    for name, (clean, make) in MAKERS.items():
        if kind not in (None, name):
            continue
        for number in range(PER_KIND):
            page = make(random.Random(f"{name} {number}"))
            yield KnownPage(f"{name} {number}", name, clean, page.image, page.lines)
