"""PDF documents: their pages as pictures, and the text that they carry. Rendered by PDFium."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import IO, TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from qwink.errors import ImageError, OptionError, QwinkError
from qwink.extras import install_command
from qwink.inputs.files import read_object, read_path, spelled

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

TextLayer = Literal["ignore", "use"]

POINTS_PER_INCH = 72
PIXELS_PER_INCH = 200  # of a page at full size: small print of 6 pt has 17 px
MAX_PAGES = 100  # in one question
_LARGEST_SIDE = 14_400  # points; the most that the PDF specification allows
# PDFium is one library for the whole process, and not made for several threads at once.
_PDFIUM = Lock()


@dataclass(frozen=True, slots=True)
class PdfOptions:
    """Which pages of a PDF are shown, such as "1-3,7"; None is all of them.

    `text_layer` "use" also gives the model the text that a page carries; it may differ from what
    the page shows. Raises OptionError for a text that names no pages.
    """

    pages: str | None = None
    text_layer: TextLayer = "ignore"

    def __post_init__(self) -> None:
        if self.text_layer not in ("ignore", "use"):
            raise OptionError(f"text_layer is {self.text_layer!r}; it must be ignore or use")
        if self.pages is not None:
            page_ranges(self.pages)


@dataclass(frozen=True, slots=True, eq=False)
class OpenedPdf:
    """A document whose structure was read. `sizes` are (width, height) of its pages in points."""

    sizes: tuple[tuple[float, float], ...]
    name: str
    content: bytes = field(repr=False)

    @property
    def num_pages(self) -> int:
        return len(self.sizes)

    def full_size(self, page: int) -> tuple[int, int]:
        """(width, height) in pixels of page number `page`, from 1, at PIXELS_PER_INCH."""
        width, height = self.sizes[page - 1]
        scale = PIXELS_PER_INCH / POINTS_PER_INCH
        return max(1, round(width * scale)), max(1, round(height * scale))


def is_pdf(source: object) -> bool:
    """Whether bytes, or the file at a path, begin as a PDF does: within the first 1024 bytes."""
    if isinstance(source, str | os.PathLike):
        try:
            with open(source, "rb") as file:
                head = file.read(1024)
        except (OSError, ValueError):
            return False
    elif isinstance(source, bytes | bytearray | memoryview):
        head = bytes(source[:1024])
    else:
        return False
    return b"%PDF-" in head


def page_ranges(text: str) -> tuple[range, ...]:
    """Ranges of page numbers, from 1, of a text such as "1-3,7,10-". An open range ends at 10⁹.

    Raises OptionError for anything else.
    """
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})?\s*(-)?\s*(\d{1,9})?\s*", part)
        first = int(match[1]) if match and match[1] else 1
        last = int(match[3]) if match and match[3] else 10**9
        if match and match[1] and not match[2] and not match[3]:
            last = first
        if not match or not (match[1] or match[3]) or not 1 <= first <= last:
            raise OptionError(f"pages are {text!r}; write numbers and ranges such as 1-3,7")
        ranges.append(range(first, last + 1))
    return tuple(ranges)


def choose_pages(num_pages: int, options: PdfOptions, name: str) -> tuple[int, ...]:
    """Numbers of the pages to show, from 1, in the order asked for, each once.

    Raises OptionError for pages that the document does not have, and for more than MAX_PAGES.
    """
    if options.pages is None:
        chosen = list(range(1, num_pages + 1))
    else:
        chosen = []
        for numbers in page_ranges(options.pages):
            if numbers.start > num_pages or (numbers.stop - 1 > num_pages and numbers.stop < 10**9):
                raise OptionError(f"pages are {options.pages!r}, but {name} has {num_pages} pages")
            chosen += range(numbers.start, min(numbers.stop, num_pages + 1))
    chosen = list(dict.fromkeys(chosen))
    if len(chosen) > MAX_PAGES:
        raise OptionError(
            f"{name} has {len(chosen)} pages, more than the {MAX_PAGES} of one question; choose "
            "some with pages, such as pages 1-20, or ask about each page apart"
        )
    return tuple(chosen)


def open_pdf(source: bytes | str | os.PathLike[str] | IO[bytes]) -> OpenedPdf:
    """Read a document's structure.

    Raises ImageError for a file that is no PDF, is damaged, needs a password or has no pages, and
    where PDFium is not installed.
    """
    if isinstance(source, str | os.PathLike):
        content, name = read_path(source), spelled(source)
    elif isinstance(source, bytes | bytearray | memoryview):
        content, name = bytes(source), "the PDF"
    else:
        content, name = read_object(source), "the PDF"
    if not is_pdf(content):
        raise ImageError(f"{name} is no PDF; it does not begin with %PDF")
    with _opened(content, name) as document:
        sizes = tuple(_size(document, number) for number in range(len(document)))
    if not sizes:
        raise ImageError(f"{name} has no pages; save it again")
    return OpenedPdf(sizes, name, content)


def render(pdf: OpenedPdf, page: int, at_least: tuple[int, int]) -> NDArray[np.uint8]:
    """Page number `page`, from 1, as RGB [H, W, 3]: both sides at least as long as `at_least`
    (width, height), but for the shape of the page. Raises ImageError if it cannot be rendered.
    """
    width, height = pdf.sizes[page - 1]
    scale = max(at_least[0] / width, at_least[1] / height)
    with _opened(pdf.content, pdf.name) as document:
        bitmap = document[page - 1].render(scale=scale, rev_byteorder=True, prefer_bgrx=False)
        return np.array(bitmap.to_numpy()[:, :, :3], np.uint8, order="C")


def text_layer(pdf: OpenedPdf, page: int) -> str:
    """The text that page number `page` carries, from 1; empty where there is none."""
    with _opened(pdf.content, pdf.name) as document:
        text: str = document[page - 1].get_textpage().get_text_bounded()
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


def _size(document: PdfDocument, number: int) -> tuple[float, float]:
    """Width and height of a page in points, turned as it is shown, within what PDF allows."""
    width, height = document.get_page_size(number)
    width, height = (min(max(side, 1.0), _LARGEST_SIDE) for side in (width, height))
    return width, height


@contextmanager
def _opened(content: bytes, name: str) -> Iterator[PdfDocument]:
    """The document, for one thread at a time. Turns PDFium's errors into ImageError."""
    try:
        import pypdfium2
    except ImportError:
        raise ImageError(f"PDFs need pypdfium2; install it: {install_command('pdf')}") from None
    with _PDFIUM:
        document = None
        try:
            document = pypdfium2.PdfDocument(content)
            yield document
        except QwinkError:
            raise
        except pypdfium2.PdfiumError as error:
            why = str(error)
            if "password" in why.lower():
                raise ImageError(f"{name} needs a password; save it without one") from error
            raise ImageError(
                f"cannot read {name} as a PDF: {why}; it is damaged: save or download it again"
            ) from error
        except MemoryError as error:
            raise ImageError(f"not enough memory to render {name}; save it smaller") from error
        finally:
            if document is not None:
                document.close()


def describe_pages(numbers: Sequence[int]) -> str:
    """Page numbers in short: "1-3, 7"."""
    parts: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if previous is not None and number != previous + 1:
            parts.append(f"{start}" if start == previous else f"{start}-{previous}")
            start = number
        elif start is None:
            start = number
        previous = number
    return ", ".join(parts)
