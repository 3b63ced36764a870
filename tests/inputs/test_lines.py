"""Lines of pages, on the corpus of pages with known lines and on random ones."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import PIL.Image
import PIL.ImageDraw
import pytest

from qwink.inputs.lines import Page, find_lines, skew
from qwink.lab.pictures.pages import MAKERS, KnownLine, KnownPage, pages
from qwink.lab.pictures.sketch import font


def owners(known: KnownPage, page: Page) -> list[set[int]]:
    """For each known line, the found lines that hold its letters; -1 stands for none."""
    return [
        {_owner(_turned(point, known, page), line, page) for point in line.path}
        for line in known.lines
    ]


def _turned(point: tuple[float, float], known: KnownPage, page: Page) -> tuple[float, float]:
    angle = math.radians(page.angle)
    x, y = point[0] - known.image.width / 2, point[1] - known.image.height / 2
    height, width = page.pixels.shape[:2]
    return (
        x * math.cos(angle) + y * math.sin(angle) + width / 2,
        y * math.cos(angle) - x * math.sin(angle) + height / 2,
    )


def _owner(point: tuple[float, float], line: KnownLine, page: Page) -> int:
    x, y, reach = *point, 0.3 * line.height
    for number, found in enumerate(page.lines):
        left, top, right, bottom = found.box
        if left - 3 <= x <= right + 3 and top <= y - reach and y + reach <= bottom:
            return number
    return -1


def test_no_line_of_a_clean_page_is_cut_and_hardly_any_of_others() -> None:
    """The aim is 0 on the clean half of the corpus and below 1 % on the rest."""
    lines, cut, disorder = Counter[bool](), Counter[bool](), Counter[bool]()
    for kind, (clean, _) in MAKERS.items():
        for known in list(pages(kind))[:2]:
            homes = owners(known, find_lines(np.asarray(known.image)))
            lines[clean] += len(homes)
            cut[clean] += sum(len(found) > 1 or found == {-1} for found in homes)
            order = [min(found) for found in homes]
            disorder[clean] += sum(b < a for a, b in pairwise(order))
    assert (cut[True], disorder[True]) == (0, 0)
    assert cut[False] <= 0.01 * lines[False]
    assert disorder[False] <= 0.01 * lines[False]
    assert min(lines.values()) > 100


def test_columns_are_read_one_after_the_other() -> None:
    known = next(pages("two columns"))
    page = find_lines(np.asarray(known.image))
    columns = [line.column for line in page.lines]
    assert columns == sorted(columns)
    assert len(set(columns)) >= 3  # above, left, right
    # An item and its price are one line, however far apart.
    receipt = next(pages("receipt"))
    page = find_lines(np.asarray(receipt.image))
    assert len(page.lines) == len(receipt.lines)
    assert len({line.column for line in page.lines}) == 1


@pytest.mark.parametrize("angle", [-2.5, -1.0, 0.0, 1.5])
def test_skew_is_found(angle: float) -> None:
    image = PIL.Image.new("RGB", (700, 500), "white")
    draw = PIL.ImageDraw.Draw(image)
    for y in range(40, 460, 30):
        draw.text((60, y), "The ferry leaves the harbour at seven", "black", font(20))
    turned = image.rotate(-angle, fillcolor="white")
    page = find_lines(np.asarray(turned))
    assert page.angle == pytest.approx(angle, abs=0.3)
    assert len(page.lines) == 14
    assert skew(np.zeros((50, 50), np.bool_)) == 0.0


@pytest.mark.parametrize(("ground", "pen"), [("white", "black"), ("#101828", "#ffd080")])
def test_grounds_and_random_gaps(ground: str, pen: str) -> None:
    """Against what was drawn: lines at random places, on light and dark ground."""
    rng = np.random.default_rng()
    image = PIL.Image.new("RGB", (600, 900), ground)
    draw, y, tops = PIL.ImageDraw.Draw(image), 20, []
    size = int(rng.integers(14, 30))
    while y < 850:
        draw.text((30, y), "Harbour ferry 42.50", pen, font(size))
        tops.append(y)
        y += int(size * rng.uniform(1.3, 3))
    found = find_lines(np.asarray(image)).lines
    assert len(found) == len(tops), (size, tops)
    for line, top in zip(found, tops, strict=True):
        assert top <= line.box[1] <= top + size
        assert line.box[3] <= top + 1.4 * size


def test_pages_without_print_have_no_lines() -> None:
    assert find_lines(np.full((64, 64, 3), 200, np.uint8)).lines == ()
    for shape in ((1, 1, 3), (3, 500, 3), (500, 2, 3)):
        find_lines(np.random.default_rng().integers(0, 256, shape).astype(np.uint8))
    photo = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    found = find_lines(photo).lines
    assert all(line.photo or line.height > 100 for line in found)
