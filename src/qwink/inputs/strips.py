"""A page cut into strips of whole lines, which are read one by one and joined again.

Where a cut is not safe, the page stays whole, and the reason is given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from qwink.inputs.budget import TOKEN_PIXELS, TOKEN_SIDE
from qwink.inputs.lines import Line, Page, find_lines
from qwink.types import Task

Box = tuple[int, int, int, int]

_LINE_HEIGHT = 22  # pixels of a line's letters in a strip of one line, 32 px high
_MOST_ENLARGED = 4.0
_SHORT = 6.0  # of a line's height: how long a strip of a line may be, about twelve letters
_APART = 2.0  # of a line's height: parts of a line that are so far apart are read apart
_SPACE = 0.28  # of a line's height: wider gaps are between words for certain
_TABLE_GAP = 1.5  # of a line's height: least width of a gap between the cells of a table
_MARGIN = 0.6  # of a line's height: ground that is left around print
_PHOTO_SHARE = 0.4  # of the area: a page with more pictures than that is not cut
_STRETCH = 0.3  # of a strip's height: how far a cut may move to a better gap
_OVERLAP = 0.12  # of a piece's length, where there is no gap
_LEAST_TOKENS = 96  # of a strip; smaller ones save nothing
MOST_STRIPS = 8
# Questions that want the text itself, and nothing that needs the whole page to be understood.
_REST = (
    r"(?:all|the|this|everything|whole|entire|of|text|page|document|receipt|lines?|it|words?|image"
    r"|picture|screenshot|on|in|written|here|there|exactly|please|as|markdown|into|to|plain)"
)
_TRANSCRIBE = re.compile(
    rf"(?:please )?(?:(?:read|transcribe|ocr|convert|extract)(?: {_REST})*"
    r"|what (?:does|do) (?:it|this|the (?:text|page|image|picture|receipt|sign|document)) say"
    rf"|what (?:is|text is)(?: {_REST})+)"
    r"|请?(?:读出|转写|识别|抄录)[^，。？?]{0,8}(?:文字|文本|内容)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Strip:
    """A part of a page: its box in pixels of the page, and the size to show it at.

    `overlaps`: it begins with the end of the strip before, since there was no gap to cut in.
    `joint` stands between the texts of the strip before and of this one.
    """

    box: Box
    size: tuple[int, int]  # (width, height), multiples of 32
    overlaps: bool = False
    joint: str = "\n"


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A page and its strips in reading order. Without strips, `reason` says why it stays whole."""

    pixels: NDArray[np.uint8]  # [H, W, 3]
    strips: tuple[Strip, ...]
    reason: str
    angle: float = 0.0  # degrees by which the page was turned anticlockwise


def transcribes(task: Task, question: str, defaults: Sequence[str]) -> bool:
    """Whether the question asks for the text as it is, so that a part can be read by itself."""
    if task not in ("ocr", "document"):
        return False
    asked = " ".join(question.split()).strip(" .?!。？")
    return question in defaults or _TRANSCRIBE.fullmatch(asked) is not None


def cut_into_lines(pixels: NDArray[np.uint8], most: int) -> Cut:
    """A strip for each line, for models that read a short one: a long line becomes several strips
    of a few words. `most`: pixels of a strip.
    """
    page = find_lines(pixels)
    lines = [line for line in page.lines if not line.photo]
    if not lines:
        return Cut(pixels, (), "strips: no lines found")
    strips = tuple(
        _line_strip(part, page, most, " " if number else "\n")
        for line in lines
        for number, part in enumerate(_short(line, page.typical))
    )
    parts = f" in {len(strips)} parts" if len(strips) > len(lines) else ""
    counted = f"{len(lines)} line" + "s" * (len(lines) > 1)
    return _found(page, strips, f"strips: {counted}{parts}")


def cut_into_strips(pixels: NDArray[np.uint8], scale: float, count: int | None = None) -> Cut:
    """About `count` strips of equal area, or as many as pay; `scale` is that of the whole page.

    No cut goes through a table or a picture.
    """
    page = find_lines(pixels)
    area = page.pixels.shape[0] * page.pixels.shape[1]
    if sum(_area(line) for line in page.lines if line.photo) > _PHOTO_SHARE * area:
        return Cut(pixels, (), "strips: not cut, the page is mostly a picture")
    if len(page.lines) < 2:
        return Cut(pixels, (), "strips: not cut, there are no white gaps")
    if count is None:
        count = int(area * scale**2 / TOKEN_PIXELS // _LEAST_TOKENS)
    groups = _groups(page, min(max(count, 1), MOST_STRIPS, len(page.lines)))
    if len(groups) < 2:
        reason = "a table goes across it" if _tables(page.lines) else "it is small"
        return Cut(pixels, (), f"strips: not cut, {reason}")
    strips = tuple(_strip(_bounds(group, page), scale) for group in groups)
    return _found(page, strips, f"strips: {len(strips)}")


def cut_into_pieces(pixels: NDArray[np.uint8], most: int) -> Cut:
    """A tall or wide picture in pieces of at most `most` pixels, at full size where that is enough.

    Pieces end in gaps; where there is none, they overlap.
    """
    page = find_lines(pixels)
    height, width = page.pixels.shape[:2]
    tall = height >= width
    length, across = (height, width) if tall else (width, height)
    scale = min(1.0, math.sqrt(most / 2) / across)  # a piece is at least half as long as across
    piece = most / (across * scale * scale) * 0.9
    spans = list(_spans(_gaps_along(page, tall), length, piece))
    strips = []
    for start, end, overlaps in spans:
        box = (0, start, width, end) if tall else (start, 0, end, height)
        strips.append(replace(_strip(box, scale), overlaps=overlaps))
    if len(strips) < 2:
        return Cut(pixels, (), "strips: one piece is enough")
    return _found(page, tuple(strips), f"strips: {len(strips)} pieces")


def shown(cut: Cut, strip: Strip) -> NDArray[np.uint8]:
    """A strip's pixels at its size [h, w, 3], with ground around where its shape differs."""
    left, top, right, bottom = strip.box
    part = cut.pixels[top:bottom, left:right]
    height, width = part.shape[:2]
    scale = min(strip.size[0] / width, strip.size[1] / height)
    inner = max(1, round(width * scale)), max(1, round(height * scale))
    edges = np.concatenate([part[0], part[-1], part[:, 0], part[:, -1]])
    ground = tuple(int(value) for value in np.median(edges, axis=0))
    canvas = PIL.Image.new("RGB", strip.size, ground)
    image = PIL.Image.fromarray(np.ascontiguousarray(part))
    resized = image.resize(inner, PIL.Image.Resampling.BICUBIC)
    canvas.paste(resized, ((strip.size[0] - inner[0]) // 2, (strip.size[1] - inner[1]) // 2))
    return np.asarray(canvas)


def _found(page: Page, strips: tuple[Strip, ...], reason: str) -> Cut:
    turned = f", turned by {page.angle:g}°" if page.angle else ""
    return Cut(page.pixels, strips, reason + turned, page.angle)


def _short(line: Line, typical: float) -> Iterator[Box]:
    """A line in parts of a few words, cut at its widest gaps, with half of each gap as ground."""
    left, top, right, bottom = line.box
    # Capitals alone are lower than other print, and as wide.
    height = max(0.9 * typical, min(line.height, 1.5 * typical))
    margin = round(_MARGIN * height)
    start, room = left, margin
    while (gap := _next_gap(line, start, _SHORT * height, height)) is not None:
        half = min(margin, (gap[1] - gap[0]) // 2)
        yield start - room, top, gap[0] + half, bottom
        start, room = gap[1], half
    yield start - room, top, right + margin, bottom


def _next_gap(line: Line, start: int, length: float, height: float) -> tuple[int, int] | None:
    """The gap to cut in behind `start`, so that the part is about as long as `length` at most."""
    gaps = [gap for gap in line.gaps if gap[0] > start]
    apart = next((gap for gap in gaps if gap[1] - gap[0] >= _APART * height), None)
    if apart is not None and apart[0] <= start + length:
        return apart
    if line.box[2] <= start + length:
        return None
    near = [gap for gap in gaps if start + 0.3 * length < gap[0] <= start + length]
    spaces = [gap for gap in near if gap[1] - gap[0] >= _SPACE * height]
    if spaces:
        return max(spaces, key=lambda gap: (gap[1] - gap[0], gap[0]))
    # A long word: to its end, unless that is far.
    for gap in gaps:
        if gap[0] > start + length and gap[1] - gap[0] >= _SPACE * height:
            return gap if gap[0] <= start + 1.6 * length or not near else near[-1]
    return None if line.box[2] <= start + 1.6 * length or not near else near[-1]


def _line_strip(part: Box, page: Page, most: int, joint: str) -> Strip:
    """A line on a strip 32 px high, its letters about 22, or smaller where it is too long."""
    height, width = page.pixels.shape[:2]
    left, top, right, bottom = max(0, part[0]), part[1], min(width, part[2]), part[3]
    tall = bottom - top
    scale = min(_LINE_HEIGHT / tall, _MOST_ENLARGED, most / TOKEN_SIDE / (right - left))
    # As high as the strip, but not into the lines above and below.
    reach = max(0.0, min(TOKEN_SIDE / scale - tall, 0.5 * page.typical)) / 2
    top, bottom = max(0, math.floor(top - reach)), min(height, math.ceil(bottom + reach))
    # Some ground on both sides, also where neighbours left none.
    columns = math.ceil(((right - left) * scale + _LINE_HEIGHT / 2) / TOKEN_SIDE)
    columns = max(1, min(columns, most // TOKEN_PIXELS))
    return Strip((left, top, right, bottom), (columns * TOKEN_SIDE, TOKEN_SIDE), joint=joint)


def _strip(box: Box, scale: float) -> Strip:
    """A strip at a scale, its sides rounded up to whole tokens."""
    left, top, right, bottom = box
    sides = (math.ceil(side * scale / TOKEN_SIDE - 0.02) for side in (right - left, bottom - top))
    width, height = (max(1, side) * TOKEN_SIDE for side in sides)
    return Strip(box, (width, height))


def _bounds(group: Sequence[Line], page: Page) -> Box:
    """The box of lines with some ground around."""
    height, width = page.pixels.shape[:2]
    margin = round(_MARGIN * page.typical)
    across = round(_MARGIN * page.typical / 2)
    return (
        max(0, min(line.box[0] for line in group) - margin),
        max(0, min(line.box[1] for line in group) - across),
        min(width, max(line.box[2] for line in group) + margin),
        min(height, max(line.box[3] for line in group) + across),
    )


def _groups(page: Page, count: int) -> list[list[Line]]:
    """Lines in reading order, cut into about `count` groups of equal area at the widest gaps."""
    tables = _tables(page.lines)
    whole = sum(map(_area, page.lines))
    groups: list[list[Line]] = []
    first = 0
    for _, lines in groupby(page.lines, lambda line: line.column):
        column = list(lines)
        inside = {number - first for number in tables}
        share = sum(map(_area, column)) / whole
        groups += _divided(column, max(1, round(count * share)), inside, page.typical)
        first += len(column)
    return groups


def _divided(
    lines: Sequence[Line], count: int, inside: set[int], typical: float
) -> Iterator[list[Line]]:
    """The lines of a column in `count` groups. `inside`: numbers after which no cut is made."""
    start, left = 0, sum(map(_area, lines))
    for groups in range(count, 1, -1):
        target, filled = left / groups, 0.0
        best: tuple[float, float, int, float] | None = None
        for number in range(start, len(lines) - 1):
            filled += _area(lines[number])
            if filled > (1 + _STRETCH) * target and best is not None:
                break
            if number in inside or filled < (1 - _STRETCH) * target:
                continue
            wide = round(2 * _gap(lines, number) / typical)
            best = max(best or (-1.0, 0.0, 0, 0.0), (wide, -abs(filled - target), number, filled))
        if best is None:
            break
        yield list(lines[start : best[2] + 1])
        start, left = best[2] + 1, left - best[3]
    yield list(lines[start:])


def _gap(lines: Sequence[Line], number: int) -> int:
    return lines[number + 1].box[1] - lines[number].box[3]


def _tables(lines: Sequence[Line]) -> set[int]:
    """Numbers of lines after which a table goes on: three lines or more with gaps in one place."""
    pairs = [
        number
        for number, (a, b) in enumerate(pairwise(lines))
        if a.column == b.column
        and any(x < d and c < y for x, y in _wide(a) for c, d in _wide(b))
        and _gap(lines, number) < 3 * max(a.height, b.height)
    ]
    found = set(pairs)
    return {n for n in found if n - 1 in found or n + 1 in found}


def _wide(line: Line) -> list[tuple[int, int]]:
    return [(a, b) for a, b in line.gaps if b - a >= _TABLE_GAP * line.height]


def _area(line: Line) -> float:
    return (line.box[2] - line.box[0] + line.height) * 1.5 * line.height


def _gaps_along(page: Page, tall: bool) -> list[tuple[int, int]]:
    """Gaps between print along a picture: (start, end) in pixels."""
    spans = sorted(
        (line.box[1], line.box[3]) if tall else (line.box[0], line.box[2]) for line in page.lines
    )
    gaps, reached = [], 0
    for start, end in spans:
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, end)
    return gaps


def _spans(
    gaps: Sequence[tuple[int, int]], length: int, piece: float
) -> Iterator[tuple[int, int, bool]]:
    """Pieces as (start, end, overlaps) that end in the widest gap near their end."""
    start, overlaps = 0, False
    while length - start > piece:
        wanted = [
            (b - a, (a + b) // 2)
            for a, b in gaps
            if start + piece / 2 < (a + b) / 2 <= start + piece
        ]
        if wanted:
            widest = max(width for width, _ in wanted)
            end = max(middle for width, middle in wanted if width >= widest / 2)
            yield start, end, overlaps
            start, overlaps = end, False
        else:
            end = round(start + piece)
            yield start, end, overlaps
            start, overlaps = round(end - _OVERLAP * piece), True
    yield start, length, overlaps
