"""Kinds of files, and what makes parts of each. A new kind is an entry of KINDS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath

from qwink.batches.items import Part
from qwink.inputs.files import read_path


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file, known by its suffix.

    `parts` takes a path and gives the file's parts one after the other. It may raise ImageError.
    """

    name: str
    suffixes: frozenset[str]
    parts: Callable[[str], Iterator[Part]]


def _picture(path: str) -> Iterator[Part]:
    yield Part(partial(read_path, path))


PICTURE = Kind(
    "picture",
    frozenset(
        ".jpg .jpeg .png .webp .gif .bmp .tif .tiff .avif .heic .heif".split()  # noqa: SIM905
    ),
    _picture,
)
KINDS = (PICTURE,)


def known_kind(path: str) -> Kind | None:
    """The kind by the file's suffix; None if no kind has it."""
    suffix = PurePath(path).suffix.lower()
    return next((kind for kind in KINDS if suffix in kind.suffixes), None)


def parts_of(path: str) -> Iterator[Part]:
    """The parts of a file. Files of unknown suffixes are taken for pictures, by their content."""
    yield from (known_kind(path) or PICTURE).parts(path)
