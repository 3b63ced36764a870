"""Drawn charts: bars, lines, a pie, points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import PIL.Image

from qwink.lab.pictures.entry import Entry, Make
from qwink.lab.pictures.sketch import GREY, INK, RULE, Sheet

COLOURS = "#3366aa", "#dd7733", "#449966", "#aa4488", "#888833", "#33a0a8"
LEFT, TOP, BOTTOM = 90, 110, 80  # margins around the plot


def largest(values: Mapping[str, float]) -> str:
    """The label of the largest value."""
    return max(values, key=values.__getitem__)


def bars(title: str, values: Mapping[str, float], size: tuple[int, int]) -> PIL.Image.Image:
    """A bar for each label."""
    sheet, most = _axes(title, size, max(values.values()))
    step = (size[0] - LEFT - 40) / len(values)
    for index, (label, value) in enumerate(values.items()):
        left, base = LEFT + step * (index + 0.2), size[1] - BOTTOM
        top = base - (base - TOP) * value / most
        sheet.box(left, top, left + 0.6 * step, base, COLOURS[index % len(COLOURS)])
        sheet.text(left + 0.3 * step, base + 16, label, 22, INK, "ma")
    return sheet.image


def lines(
    title: str, series: Mapping[str, Sequence[float]], size: tuple[int, int]
) -> PIL.Image.Image:
    """A line for each label, named in a legend."""
    sheet, most = _axes(title, size, max(max(values) for values in series.values()))
    base = size[1] - BOTTOM
    for index, (label, values) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        xs = np.linspace(LEFT, size[0] - 40, len(values))
        points = [
            (float(x), base - (base - TOP) * value / most)
            for x, value in zip(xs, values, strict=True)
        ]
        sheet.line(points, colour, 4)
        sheet.box(LEFT + 20 + 180 * index, 72, LEFT + 50 + 180 * index, 80, colour)
        sheet.text(LEFT + 60 + 180 * index, 64, label, 20)
    return sheet.image


def pie(title: str, shares: Mapping[str, float], size: tuple[int, int]) -> PIL.Image.Image:
    """A slice for each label, named in a legend."""
    sheet = Sheet(*size)
    sheet.text(40, 28, title, 30)
    start, total = -90.0, sum(shares.values())
    for index, (label, value) in enumerate(shares.items()):
        colour, end = COLOURS[index % len(COLOURS)], start + 360 * value / total
        sheet.slice(size[0] * 0.35, size[1] * 0.55, size[1] * 0.38, start, end, colour)
        y = 140 + 48 * index
        sheet.box(size[0] * 0.7, y, size[0] * 0.7 + 26, y + 26, colour)
        sheet.text(size[0] * 0.7 + 40, y, label, 24)
        start = end
    return sheet.image


def points(title: str, seed: int, size: tuple[int, int]) -> PIL.Image.Image:
    """Three clouds of points."""
    sheet, _ = _axes(title, size, 100)
    rng = np.random.default_rng(seed)
    width, height = size[0] - LEFT - 40, size[1] - TOP - BOTTOM
    for index in range(3):
        centre = rng.uniform(0.2, 0.8, 2)
        for x, y in np.clip(rng.normal(centre, 0.08, (60, 2)), 0, 1):
            sheet.disc(LEFT + width * x, TOP + height * y, 6, COLOURS[index])
    return sheet.image


def _axes(title: str, size: tuple[int, int], value: float) -> tuple[Sheet, float]:
    """A sheet with title and grid, and the value at its top."""
    sheet, step = Sheet(*size), 10 ** np.floor(np.log10(value))
    most = float(step * np.ceil(value / step))
    sheet.text(40, 22, title, 30)
    for tick in np.linspace(0, most, 6):
        y = size[1] - BOTTOM - (size[1] - BOTTOM - TOP) * tick / most
        sheet.line([(LEFT, y), (size[0] - 40, y)], RULE)
        sheet.text(LEFT - 12, y, f"{tick:g}", 18, GREY, "rm")
    return sheet, most


SEASONS = {"Spring": 42.0, "Summer": 96.0, "Autumn": 61.0, "Winter": 18.0}
BOATS = {"Ferry": 7.0, "Trawler": 12.0, "Yacht": 23.0, "Barge": 4.0, "Tug": 9.0}
FUELS = {"Wind": 46.0, "Solar": 17.0, "Water": 28.0, "Gas": 9.0}
TIDES = {"Port": [3, 5, 8, 6, 4, 3, 5, 9], "Island": [2, 4, 5, 5, 3, 2, 4, 6]}
PRICES = {f"Fund {n}": [40 + n * 6 + (k * (n + 2)) % 11 for k in range(24)] for n in range(4)}


def _entry(name: str, question: str, answer: str, make: Make) -> Entry:
    return Entry(name, "chart", "ocr", question, "What is the title?", answer, make)


HIGHEST = "Which bar is the highest?"
CHARTS = (
    _entry(
        "seasons",
        HIGHEST,
        largest(SEASONS),
        partial(bars, "Visitors by season", SEASONS, (1000, 700)),
    ),
    _entry(
        "tides",
        "Which line ends higher?",
        "Port",
        partial(lines, "Height of the tide", TIDES, (1600, 900)),
    ),
    _entry(
        "fuels",
        "Which slice is the largest?",
        largest(FUELS),
        partial(pie, "Where the power comes from", FUELS, (900, 700)),
    ),
    _entry(
        "boats",
        HIGHEST,
        largest(BOATS),
        partial(bars, "Boats in the harbour", BOATS, (800, 600)),
    ),
    _entry(
        "clouds",
        "How many colours do the points have?",
        "3",
        partial(points, "Samples", 11, (1000, 1000)),
    ),
    _entry(
        "funds",
        "How many lines are there?",
        "4",
        partial(lines, "Value of four funds", PRICES, (1280, 720)),
    ),
)
