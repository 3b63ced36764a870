"""Kinds of files, and what makes parts of each. A new kind is an entry of KINDS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath

from qwink.batches.items import Part
from qwink.inputs.files import read_path
from qwink.inputs.pdf import open_pdf
from qwink.runtime.documents import page_picture


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


def _pages(path: str) -> Iterator[Part]:
    pdf = open_pdf(path)
    for number in range(1, pdf.num_pages + 1):
        yield Part(partial(page_picture, pdf, number), page=number)


PICTURE = Kind(
    "picture",
    frozenset(
        ".jpg .jpeg .png .webp .gif .bmp .tif .tiff .avif .heic .heif".split()  # noqa: SIM905
    ),
    _picture,
)
PDF = Kind("PDF", frozenset({".pdf"}), _pages)
KINDS = (PICTURE, PDF)


def known_kind(path: str) -> Kind | None:
    """The kind by the file's suffix; None if no kind has it."""
    suffix = PurePath(path).suffix.lower()
    return next((kind for kind in KINDS if suffix in kind.suffixes), None)


def parts_of(path: str) -> Iterator[Part]:
    """The parts of a file. Files of unknown suffixes are taken for pictures, by their content."""
    yield from (known_kind(path) or PICTURE).parts(path)
