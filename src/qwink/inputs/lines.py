"""Lines of print on a page, in reading order: white gaps, columns, small skew, any ground.

A page is cut as in the recursive X-Y cut (Nagy and Seth, 1984): rows without ink divide lines,
columns without ink divide text columns. A gap between an item and its price is no gutter, since
the text beside a gutter fills its column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import PIL.Image
from numpy.typing import NDArray

Mask = NDArray[np.bool_]

_WIDTH = 1400  # pixels; wider pages are reduced for the analysis
_TILE = 32  # pixels; the ground is taken to be even within this distance
_LEAST_CONTRAST = 28  # of 255
_ANGLES = np.arange(-3.0, 3.01, 0.25)  # degrees
_LEAST_ANGLE = 0.3  # degrees; less skew does no harm
_SMALL = 0.45  # of a line's height: accents, dots and underlines belong to a line beside them
_SPACE = 0.22  # of a line's height: least width of a gap between words
_SPECK = 0.25  # of a line's height: what is lower and alone is no print
_RULE_WIDTH = 6  # pixels; what is long and at most this wide is a rule
_VALLEY = 0.25  # of the ink of its neighbours: where touching lines are divided
_GUTTER = 0.8  # of a line's height: least width of a gap between columns
_FILLED = 0.6  # of a column's width: how long its lines are at least, in the middle
_LEAST_COLUMN = 0.25  # of the width of both columns together
_PHOTO_HEIGHT, _PHOTO_INK = 4.0, 0.2  # of a line's height; of the area


@dataclass(frozen=True, slots=True)
class Line:
    """A line of print, or something as high as several: left, top, right, bottom in pixels.

    `column` numbers the text columns in reading order. `gaps` are those within the line from the
    width of a space on, as (left, right). `photo`: it is a picture or a solid area, not print.
    """

    box: tuple[int, int, int, int]
    column: int
    gaps: tuple[tuple[int, int], ...] = ()
    photo: bool = False

    @property
    def height(self) -> int:
        return self.box[3] - self.box[1]


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page whose lines are level. `pixels` are the given ones unless it was turned.

    `angle` is by how many degrees it was turned anticlockwise. `typical` is the height of a line in
    pixels; 0 without lines.
    """

    pixels: NDArray[np.uint8]  # [H, W, 3]
    lines: tuple[Line, ...]
    typical: float
    angle: float = 0.0


def find_lines(pixels: NDArray[np.uint8]) -> Page:
    """The lines of a page [H, W, 3]. A page that is turned by up to 3 degrees is turned back."""
    scale = max(1.0, pixels.shape[1] / _WIDTH)
    mask = ink(_reduced(pixels, scale))
    angle = skew(mask)
    if angle:
        pixels = _turned(pixels, angle)
        mask = ink(_reduced(pixels, scale))
    reader = _Reader(mask)
    reader.read(0, 0, mask.shape[1], mask.shape[0])
    lines = tuple(_scaled(line, scale, pixels.shape) for line in reader.lines)
    return Page(pixels, lines, reader.typical * scale, angle)


def ink(pixels: NDArray[np.uint8]) -> Mask:
    """Where a page [H, W, 3] differs from the ground around: [H, W]."""
    height, width = pixels.shape[:2]
    rows, cols = math.ceil(height / _TILE), math.ceil(width / _TILE)
    padded = np.pad(
        pixels, ((0, rows * _TILE - height), (0, cols * _TILE - width), (0, 0)), mode="edge"
    )
    tiles = padded.reshape(rows, _TILE, cols, _TILE, 3)[:, ::2, :, ::2].transpose(0, 2, 1, 3, 4)
    ground = np.median(tiles.reshape(rows, cols, -1, 3), axis=2)
    # A tile full of bold print is taken for ground: the tiles around decide.
    around = np.pad(ground, ((1, 1), (1, 1), (0, 0)), mode="edge")
    near = [around[y : y + rows, x : x + cols] for y in range(3) for x in range(3)]
    ground = np.median(np.stack(near), axis=0).astype(np.uint8)
    whole = np.repeat(np.repeat(ground, _TILE, 0), _TILE, 1)[:height, :width]
    difference = np.zeros((height, width), np.uint8)
    for channel in range(3):
        one, other = pixels[..., channel], whole[..., channel]
        np.maximum(difference, np.maximum(one, other) - np.minimum(one, other), out=difference)
    strong = float(np.percentile(difference[::3, ::3], 99.5))
    mask: Mask = difference > max(_LEAST_CONTRAST, 0.35 * strong)
    return _without_specks(mask)


def skew(mask: Mask) -> float:
    """By how many degrees a page must be turned anticlockwise so that its lines are level."""
    ys, xs = np.nonzero(mask[::2, ::2])
    if len(ys) < 50:
        return 0.0
    if len(ys) > 120_000:
        step = len(ys) // 120_000 + 1
        ys, xs = ys[::step], xs[::step]
    scores = []
    for angle in _ANGLES:
        rows = np.rint(ys - xs * math.tan(math.radians(angle))).astype(np.int64)
        profile = np.bincount(rows - rows.min()).astype(np.float64)
        scores.append(float(np.square(np.diff(profile)).sum()))
    best = int(np.argmax(scores))
    level = scores[len(_ANGLES) // 2]
    angle = float(_ANGLES[best])
    return angle if abs(angle) >= _LEAST_ANGLE and scores[best] > 1.15 * level else 0.0


class _Reader:
    """Collects the lines of a mask."""

    def __init__(self, mask: Mask) -> None:
        self.lines: list[Line] = []
        mask = _without_edges(mask)
        self._mask = _without_rules(mask, _typical(mask, weighted=False))
        self.typical = _typical(self._mask)
        self._column = 0

    def read(self, left: int, top: int, right: int, bottom: int) -> None:
        """All lines of a region, columns one after the other."""
        rows = self._rows(left, top, right, bottom)
        filled = [_any(self._mask[a:b, left:right]) for a, b in rows]
        number = 0
        while number < len(rows):
            end, gutter = self._columns(rows, filled, number, left, right)
            if gutter is None:
                self._add(rows[number], left, right)
                number += 1
                continue
            a, b = rows[number][0], rows[end - 1][1]
            self._column += 1
            self.read(left, a, left + gutter, b)
            self._column += 1
            self.read(left + gutter, a, right, b)
            self._column += 1
            number = end

    def _columns(
        self, rows: list[tuple[int, int]], filled: list[Mask], start: int, left: int, right: int
    ) -> tuple[int, int | None]:
        """The end of the rows from `start` on that share a gutter, and where it is."""
        together = np.zeros(right - left, np.bool_)
        end, place = start, None
        for number in range(start, len(rows)):
            together = together | filled[number]
            found = self._gutter(together)
            if found is None:
                break
            end, place = number + 1, found
        if place is None:
            return start, None
        a, b = rows[start][0], rows[end - 1][1]
        used = np.flatnonzero(_any(self._mask[a:b, left:right]))
        least = _LEAST_COLUMN * (used[-1] - used[0])
        halves = ((left, left + place), (left + place, right))
        good = all(self._is_column(x, a, y, b, least) for x, y in halves)
        return (end, place) if good else (start, None)

    def _gutter(self, filled: Mask) -> int | None:
        """The middle of the widest gap between filled columns, if one is wide enough."""
        found = np.flatnonzero(filled)
        if not len(found):
            return None
        gaps = [
            (b - a, (a + b) // 2)
            for a, b in _runs(~filled)
            if a > found[0] and b <= found[-1] and b - a >= _GUTTER * self.typical
        ]
        return max(gaps)[1] if gaps else None

    def _is_column(self, left: int, top: int, right: int, bottom: int, least: float) -> bool:
        """Whether a region holds running text: three lines or more that fill it, and it is wide."""
        rows = self._rows(left, top, right, bottom)
        used = np.flatnonzero(_any(self._mask[top:bottom, left:right]))
        width = used[-1] - used[0] + 1
        if len(rows) < 3 or width < least:
            return False
        lengths = []
        for start, end in rows:
            filled = _any(self._mask[start:end, left:right])
            xs = np.flatnonzero(filled)
            widest = max((b - a for a, b in _runs(~filled[xs[0] : xs[-1]])), default=0)
            lengths.append((xs[-1] - xs[0] + 1) / width if widest < 2.5 * self.typical else 0.0)
        return float(np.median(lengths)) >= _FILLED

    def _rows(self, left: int, top: int, right: int, bottom: int) -> list[tuple[int, int]]:
        """Lines of a region as (top, bottom): runs of rows with ink, small ones joined to others,
        high ones divided where hardly any ink is."""
        counts = self._mask[top:bottom, left:right].sum(axis=1)
        runs = [(a + top, b + top) for a, b in _runs(counts > 1)]
        divided = [part for run in runs for part in self._divided(run, counts, top, left, right)]
        return self._joined(divided)

    def _divided(
        self, run: tuple[int, int], counts: NDArray[np.int64], top: int, left: int, right: int
    ) -> list[tuple[int, int]]:
        start, end = run
        if end - start < 1.6 * self.typical or self._is_photo(start, end, left, right):
            return [run]
        profile = counts[start - top : end - top]
        reach = max(2, round(0.5 * self.typical))
        cuts = []
        place = reach
        while place < len(profile) - reach:
            window = profile[max(0, place - reach) : place + reach + 1]
            peak = min(window[:reach].max(), window[-reach:].max())
            if profile[place] == window.min() and profile[place] <= _VALLEY * peak:
                cuts.append(start + place)
                place += reach
            else:
                place += 1
        edges = [start, *cuts, end]
        return list(pairwise(edges))

    def _joined(self, rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Rows, with those that are too low for print joined to the nearest close one."""
        found = list(rows)
        number = 0
        while number < len(found):
            start, end = found[number]
            if end - start >= _SMALL * self.typical:
                number += 1
                continue
            above = start - found[number - 1][1] if number else math.inf
            below = found[number + 1][0] - end if number + 1 < len(found) else math.inf
            if min(above, below) > 0.4 * self.typical:
                number += 1
            elif below <= above:
                found[number : number + 2] = [(start, found[number + 1][1])]
            else:
                found[number - 1 : number + 1] = [(found[number - 1][0], end)]
        return found

    def _is_photo(self, start: int, end: int, left: int, right: int) -> bool:
        if end - start < _PHOTO_HEIGHT * self.typical:
            return False
        part = self._mask[start:end, left:right]
        xs = np.flatnonzero(part.any(axis=0))
        return bool(part[:, xs[0] : xs[-1] + 1].mean() > _PHOTO_INK)

    def _add(self, row: tuple[int, int], left: int, right: int) -> None:
        start, end = row
        if end - start < _SPECK * self.typical:
            return
        filled = _any(self._mask[start:end, left:right])
        xs = np.flatnonzero(filled)
        if not len(xs):
            return
        first, last = int(xs[0]), int(xs[-1]) + 1
        gaps = tuple(
            (left + first + a, left + first + b)
            for a, b in _runs(~filled[first:last])
            if b - a >= _SPACE * min(end - start, self.typical)
        )
        photo = self._is_photo(start, end, left, right)
        self.lines.append(Line((left + first, start, left + last, end), self._column, gaps, photo))


def _any(mask: Mask) -> Mask:
    """Which columns have ink."""
    return np.asarray(mask.any(axis=0))


def _runs(flags: Mask) -> list[tuple[int, int]]:
    """Runs of True as (start, end)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _typical(mask: Mask, *, weighted: bool = True) -> float:
    """The median height of lines. Weighted by their ink, dots and accents count little, but rules
    count much.

    Upright bands of the page are looked at apart, since columns have lines of their own.
    """
    heights, weights = [], []
    for band in np.array_split(mask, 8, axis=1):
        counts = band.sum(axis=1)
        for a, b in _runs(counts > 1):
            if b - a >= 4:
                heights.append(b - a)
                weights.append(int(counts[a:b].sum()) if weighted else 1)
    if not heights:
        return 0.0
    order = np.argsort(heights)
    total = np.cumsum(np.array(weights)[order])
    return float(heights[order[int(np.searchsorted(total, total[-1] / 2))]])


def _without_edges(mask: Mask) -> Mask:
    """Without what touches the page's edges: the table below a photographed paper."""
    kept = mask.copy()
    for view in (kept, kept[:, ::-1], kept.T, kept.T[:, ::-1]):
        view &= ~np.logical_and.accumulate(view, axis=1)
    return kept


def _without_specks(mask: Mask) -> Mask:
    """Without pixels that have fewer than two neighbours."""
    padded = np.pad(mask, 1).astype(np.uint8)
    height, width = mask.shape
    around = sum(padded[y : y + height, x : x + width] for y in range(3) for x in range(3))
    return mask & (np.asarray(around) >= 3)


def _without_rules(mask: Mask, typical: float) -> Mask:
    """Without lines that are drawn, upright or level: frames, rules, the grid of a table."""
    length = max(32, round(2 * typical))
    upright = _opened(mask, length)
    level = _opened(mask.T, max(80, round(8 * typical))).T
    thick = _opened(upright.T, _RULE_WIDTH + 1).T | _opened(level, _RULE_WIDTH + 1)
    return mask & ~((upright | level) & ~thick)


def _opened(mask: Mask, length: int) -> Mask:
    """The parts of columns that have ink without a gap for at least so many rows."""
    if mask.shape[0] < length:
        return np.zeros_like(mask)
    found, reach = mask, 1
    while reach < length:  # where runs of `reach` rows begin
        step = min(reach, length - reach)
        found, reach = found[:-step] & found[step:], reach + step
    reach = 1
    while reach < length:  # the rows of these runs
        step = min(reach, length - reach)
        grown = np.zeros((len(found) + step, mask.shape[1]), np.bool_)
        grown[:-step] = found
        grown[step:] |= found
        found, reach = grown, reach + step
    return found


def _reduced(pixels: NDArray[np.uint8], scale: float) -> NDArray[np.uint8]:
    if scale == 1.0:
        return pixels
    height, width = pixels.shape[:2]
    size = max(1, round(width / scale)), max(1, round(height / scale))
    return np.asarray(PIL.Image.fromarray(pixels).resize(size, PIL.Image.Resampling.BOX))


def _turned(pixels: NDArray[np.uint8], angle: float) -> NDArray[np.uint8]:
    ground = tuple(int(value) for value in np.median(pixels[::4, ::4].reshape(-1, 3), axis=0))
    turned = PIL.Image.fromarray(pixels).rotate(
        angle, PIL.Image.Resampling.BICUBIC, expand=True, fillcolor=ground
    )
    return np.asarray(turned)


def _scaled(line: Line, scale: float, shape: tuple[int, ...]) -> Line:
    """The line in pixels of the whole page."""
    if scale == 1.0:
        return line
    left, top, right, bottom = line.box
    box = (
        *(math.floor(left * scale), math.floor(top * scale)),
        *(min(shape[1], math.ceil(right * scale)), min(shape[0], math.ceil(bottom * scale))),
    )
    gaps = tuple((round(a * scale), round(b * scale)) for a, b in line.gaps)
    return Line(box, line.column, gaps, line.photo)
