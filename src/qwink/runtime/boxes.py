"""Boxes and points in an answer, as data.

Qwen3-VL answers `[{"bbox_2d": [x1, y1, x2, y2], "label": "..."}]` or
`[{"point_2d": [x, y], "label": "..."}]`, often in a Markdown fence, with coordinates in thousandths
of the picture's width and height. An answer that was cut off gives the objects before the cut.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from qwink.types import Box, Point

FULL = 1000  # the width and the height in the units of bbox_2d and point_2d

_BOX_KEYS, _POINT_KEYS = ("bbox_2d", "bbox"), ("point_2d", "point")
_KEYS = (*_BOX_KEYS, *_POINT_KEYS)
_LABEL_KEYS = ("label", "text_content", "text", "name")
# A string, closed or cut off, in which braces do not count; or a brace.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """The boxes and points of an answer, in its order, and what is doubtful about them."""

    boxes: tuple[Box, ...] = ()
    points: tuple[Point, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shown:
    """The pictures that an answer may speak of.

    `sizes` are (width, height) in pixels, upright, of every picture of the conversation. Boxes that
    do not name their picture are in number `first`, which is the first of the last turn that has
    pictures; `several`: that turn has more than one.
    """

    sizes: tuple[tuple[int, int], ...] = ()
    first: int = 0
    several: bool = False


NOTHING_SHOWN = Shown()


def find_boxes(text: str, shown: Shown) -> Found:
    """The boxes and points in an answer.

    An object may name its picture in the field `image`, counted from 1. Coordinates outside of the
    picture are moved to its edge, and corners in another order are sorted.
    """
    if not shown.sizes or not any(f'"{key}"' in text for key in _KEYS):
        return Found()
    boxes: list[Box] = []
    points: list[Point] = []
    unnamed = False
    for item in _objects(text):
        image = _image_of(item, len(shown.sizes))
        place = shown.first if image is None else image
        width, height = shown.sizes[place]
        label = next((item[key] for key in _LABEL_KEYS if isinstance(item.get(key), str)), "")
        num_known = len(boxes) + len(points)
        for numbers in _coordinates(item, _BOX_KEYS, 4):
            left, right = sorted(numbers[0::2])
            top, bottom = sorted(numbers[1::2])
            pixels = _pixels((left, top, right, bottom), width, height)
            boxes.append(Box(label, (left, top, right, bottom), pixels, place))
        for numbers in _coordinates(item, _POINT_KEYS, 2):
            x, y = numbers
            points.append(Point(label, (x, y), _pixels((x, y), width, height), place))
        unnamed |= image is None and len(boxes) + len(points) > num_known
    warnings = (
        (
            f"the answer does not say which of {len(shown.sizes)} pictures its boxes are in; taken "
            f"as image {shown.first + 1}; ask about one picture at a time",
        )
        if unnamed and shown.several
        else ()
    )
    return Found(tuple(boxes), tuple(points), warnings)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text that have coordinates, from outer to inner."""
    whole = _read(_without_fence(text))
    if whole is not None:
        yield from _walk(whole)
        return
    for start, stop in _spans(text):
        yield from _walk(_read(text[start:stop]))


def _spans(text: str) -> list[tuple[int, int]]:
    """Where the outermost complete objects of a text are. Takes time linear in its length."""
    found: list[tuple[int, int]] = []
    position = text.find("{")
    while position >= 0:
        starts = [position]
        position += 1
        while starts:
            token = _TOKEN.search(text, position)
            if token is None:
                return found
            position = token.end()
            if token.group() == "{":
                starts.append(token.start())
            elif token.group() == "}":
                start = starts.pop()
                while found and found[-1][0] > start:
                    found.pop()
                found.append((start, position))
        position = text.find("{", position)
    return found


def _without_fence(text: str) -> str:
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text[3:-3].removeprefix("json")
    return text


def _read(text: str) -> Any:
    """The value of a JSON text, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if any(key in one for key in _KEYS):
                yield one
            waiting += reversed([inner for inner in one.values() if isinstance(inner, dict | list)])
        elif isinstance(one, list):
            waiting += reversed([inner for inner in one if isinstance(inner, dict | list)])


def _coordinates(item: dict[str, Any], keys: Sequence[str], count: int) -> Iterator[list[float]]:
    """The groups of `count` coordinates of an object: one, or a list of several."""
    value = next((item[key] for key in keys if key in item), None)
    if not isinstance(value, list):
        return
    for group in value if value and isinstance(value[0], list) else [value]:
        if isinstance(group, list) and len(group) == count and all(map(_is_number, group)):
            yield [min(max(number, 0), FULL) for number in group]


def _is_number(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def _image_of(item: dict[str, Any], count: int) -> int | None:
    number = item.get("image")
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= count:
        return number - 1
    return None


def _pixels(numbers: Sequence[float], width: int, height: int) -> Any:
    """Alternating x and y, in thousandths, as whole pixels."""
    sides = (width, height)
    return tuple(round(number / FULL * sides[i % 2]) for i, number in enumerate(numbers))
