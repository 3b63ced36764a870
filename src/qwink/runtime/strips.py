"""A page of a request, cut into strips that are read together, or a tall picture into pieces.

Models that read one line get each line by itself. Others get strips on request, and pieces of a
picture that they would see at less than a third of its size. Only questions that want the text of
one picture are divided so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from qwink.engine.base import Engine
from qwink.errors import ImageError, OptionError
from qwink.inputs.budget import TOKEN_PIXELS, asked_task, choose_budget, fit
from qwink.inputs.containers import is_video
from qwink.inputs.files import BinaryFile, read_object
from qwink.inputs.images import OpenedImage, decode, open_image
from qwink.inputs.pdf import PdfOptions, choose_pages, is_pdf, open_pdf
from qwink.inputs.strips import (
    MOST_STRIPS,
    Cut,
    cut_into_lines,
    cut_into_pieces,
    cut_into_strips,
    shown,
    transcribes,
)
from qwink.runtime.documents import page_picture
from qwink.runtime.messages import DEFAULT_QUESTIONS, ImagePart, text_of
from qwink.runtime.preparation import ImageOptions, PreparedImage, Strips, fetched
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import EncodedImage, Message, Picture, Task, Video

_PAGE_PIXELS = 448 * 448  # a model that takes no larger pictures reads lines
_LEAST_SHOWN = 1 / 3  # of a side's length; pictures shown smaller are cut for reading


@dataclass(frozen=True, slots=True)
class StripTurns:
    """The conversation about a strip. `overlaps` and `joint`: as in `inputs.strips.Strip`."""

    messages: tuple[Message, ...]
    overlaps: bool
    joint: str


@dataclass(frozen=True, slots=True)
class CutPage:
    """A page's strips in reading order, and the warnings of its picture."""

    strips: tuple[StripTurns, ...]
    task: Task
    warnings: tuple[str, ...]


def check_strips(strips: Any) -> None:
    """Raises OptionError unless it is auto, off or a number of strips."""
    if strips in ("auto", "off") and isinstance(strips, str):
        return
    if not isinstance(strips, int) or isinstance(strips, bool) or not 2 <= strips <= MOST_STRIPS:
        raise OptionError(f"strips is {strips!r}; use auto, off, or 2 to {MOST_STRIPS}")


class PageCutter:
    """Cuts the page of a conversation. `check` is called now and then, and may raise."""

    def __init__(self, engine: Engine, watch: Stopwatch, check: Callable[[], None]) -> None:
        limits = engine.config.preprocessor
        self._limits = limits.min_pixels, limits.max_pixels
        self._watch, self._check = watch, check

    def cut(
        self, messages: Sequence[Message], options: ImageOptions, obstacle: str | None
    ) -> CutPage | None:
        """The page in strips; None if it stays whole, with a note if strips were thought of.

        `obstacle` is an option with which answers cannot be joined.
        Raises OptionError if strips are asked for by number and cannot be, ImageError.
        """
        part = _only_picture(messages)
        by_number = isinstance(options.strips, int)
        if part is None or options.strips == "off":
            if by_number:
                raise OptionError("strips are for one question about one picture; leave strips out")
            return None
        chosen = part.options or options
        question = text_of(messages[-1])
        task = asked_task(chosen.task, question)
        if not by_number and (
            task is None or not transcribes(task, question, tuple(DEFAULT_QUESTIONS.values()))
        ):
            return None
        if obstacle is not None:
            if by_number:
                raise OptionError(f"strips and {obstacle} exclude each other; leave one out")
            return None
        with _of_first():
            source = self._opened(part.source, chosen)
        how = None if source is None else self._how(source, chosen, question, options.strips)
        if source is None or how is None:
            if by_number:
                raise OptionError("strips are for pictures; of a PDF, choose one page")
            return None
        with _of_first():
            picture = self._decoded(source)
        with self._watch.stage("resize"):
            cut = how(picture)
            self._watch.note(cut.reason)
            pictures = [_picture(picture, cut, number) for number in range(len(cut.strips))]
        if not pictures:
            return None
        own = replace(
            chosen,
            task=task or "ocr",
            min_pixels=TOKEN_PIXELS,
            max_pixels=self._limits[1],
            strips="off",
            pdf=PdfOptions(),
        )
        turns = tuple(
            StripTurns(_with_picture(messages, ImagePart(one, own)), strip.overlaps, strip.joint)
            for one, strip in zip(pictures, cut.strips, strict=True)
        )
        return CutPage(turns, own.task, picture.warnings)

    def _opened(self, source: Any, options: ImageOptions) -> OpenedImage | Picture | None:
        """A picture's header, or the one page of a PDF; None for other kinds of sources."""
        if isinstance(source, Picture):
            return source
        if isinstance(source, EncodedImage | Video):
            return None
        with self._watch.stage("fetch"):
            source = fetched(source, options.fetch_policy)
            source = read_object(source) if isinstance(source, BinaryFile) else source
            if is_video(source):
                return None
            if not is_pdf(source):
                return open_image(source, options.max_image_pixels)
            pdf = open_pdf(source)
        numbers = choose_pages(pdf.num_pages, options.pdf, pdf.name)
        if len(numbers) != 1 or options.pdf.text_layer == "use":
            return None
        with self._watch.stage("decode"):
            return page_picture(pdf, numbers[0])

    def _how(
        self,
        source: OpenedImage | Picture,
        options: ImageOptions,
        question: str,
        strips: Strips,
    ) -> Callable[[Picture], Cut] | None:
        """How the picture is cut; None if it is not."""
        width, height = source.original_size if isinstance(source, Picture) else source.size
        most = self._limits[1]
        if most < _PAGE_PIXELS:
            return lambda picture: cut_into_lines(picture.pixels, most)
        budget = choose_budget(
            asked_task(options.task, question) or "ocr",
            question,
            None,
            min_pixels=options.min_pixels,
            max_pixels=options.max_pixels,
            limits=self._limits,
        )
        size = fit(width, height, budget)
        scale = min(1.0, size[0] / width, size[1] / height)
        if isinstance(strips, int):
            return lambda picture: cut_into_strips(
                picture.pixels, scale * width / picture.size[0], strips
            )
        if scale < _LEAST_SHOWN and max(width, height) > 3 * min(width, height):
            return lambda picture: cut_into_pieces(picture.pixels, budget.max_pixels)
        return None

    def _decoded(self, source: OpenedImage | Picture) -> Picture:
        if isinstance(source, Picture):
            return source
        with self._watch.stage("decode"):
            return decode(source, check=self._check)


@contextmanager
def _of_first() -> Iterator[None]:
    """Give an ImageError the number of the only picture."""
    try:
        yield
    except ImageError as error:
        error.index = 0
        raise


def _only_picture(messages: Sequence[Message]) -> ImagePart | None:
    """The picture of a conversation that is one question about one picture."""
    roles = [message.role for message in messages]
    if roles[-1:] != ["user"] or set(roles[:-1]) - {"system"}:
        return None
    parts = [part for turn in messages for part in turn.content if not isinstance(part, str)]
    if len(parts) != 1 or isinstance(parts[0], PreparedImage):
        return None
    return parts[0] if isinstance(parts[0], ImagePart) else ImagePart(parts[0])


def _picture(page: Picture, cut: Cut, number: int) -> Picture:
    """A strip as a picture of its own."""
    strip = cut.strips[number]
    name = f"{page.key} {cut.angle} {strip.box} {strip.size}"
    key = hashlib.sha256(name.encode()).hexdigest()
    return Picture(shown(cut, strip), key, strip.size)


def _with_picture(messages: Sequence[Message], picture: ImagePart) -> tuple[Message, ...]:
    return tuple(
        replace(
            message,
            content=tuple(part if isinstance(part, str) else picture for part in message.content),
        )
        for message in messages
    )
