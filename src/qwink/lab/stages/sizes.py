"""Sizes that a picture is measured at: 448x448, 768px or 1024t."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwink.errors import OptionError
from qwink.inputs.budget import TOKEN_PIXELS

DEFAULT_SIZES = ("224x224", "336x336", "448x448", "768px", "1024t")


@dataclass(frozen=True, slots=True)
class Size:
    """An area written as `WxH`, as longest side (`px`) or as number of image tokens (`t`).

    The picture keeps its aspect ratio: only the area of 448x448 is used, not its shape.
    """

    name: str

    def __post_init__(self) -> None:
        """Raises OptionError for a name of another form."""
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*|px|t)", self.name):
            raise OptionError(
                f"size {self.name!r} is unknown; write an area as 448x448, a longest side as "
                "768px or image tokens as 1024t"
            )

    def area(self, width: int, height: int) -> int:
        """Pixels for a picture of `width` × `height`."""
        if self.name.endswith("px"):
            longest = int(self.name[:-2])
            return round(longest**2 * min(width, height) / max(width, height))
        if self.name.endswith("t"):
            return int(self.name[:-1]) * TOKEN_PIXELS
        columns, rows = self.name.split("x")
        return int(columns) * int(rows)


def choose_sizes(
    names: tuple[str, ...] | None, picture_size: tuple[int, int], limit: int
) -> tuple[list[Size], list[str]]:
    """The sizes to measure, smallest first, and the names of defaults that the model cannot take.

    `limit` is the model's largest area. Raises OptionError for a size that was asked for and is
    beyond it, or below one token.
    """
    sizes = [Size(name) for name in dict.fromkeys(names or DEFAULT_SIZES)]
    fitting = [size for size in sizes if TOKEN_PIXELS <= size.area(*picture_size) <= limit]
    others = [size.name for size in sizes if size not in fitting]
    if others and (names or not fitting):
        raise OptionError(
            f"size {others[0]} of this picture is out of range; the model takes {TOKEN_PIXELS} "
            f"to {limit} pixels, give such sizes with --sizes"
        )
    return sorted(fitting, key=lambda size: size.area(*picture_size)), others
