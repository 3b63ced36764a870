"""The turns of a conversation, their pictures made ready in the order of cost.

All pictures are opened first, which reads headers only. If their tokens and those of the text do
not fit, nothing is decoded. Equal pictures are decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from qwink.engine.base import Engine
from qwink.errors import Cancelled, ContextOverflow, ImageError, OptionError
from qwink.inputs.frames import VideoOptions
from qwink.inputs.length import least_tokens
from qwink.inputs.pdf import PdfOptions
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.boxes import NOTHING_SHOWN, Shown
from qwink.runtime.documents import FoundPdf
from qwink.runtime.messages import ImagePart, text_of
from qwink.runtime.parts import Found, Parts, find_part, prepare_part
from qwink.runtime.preparation import ImageOptions, PreparedImage
from qwink.runtime.stopwatch import Stopwatch
from qwink.runtime.tasks import TaskFinder, warnings_of
from qwink.runtime.videos import FoundVideo
from qwink.types import Grid, Message, Patches, Task


@dataclass(slots=True)
class Turns:
    """Prepares turns for an engine with room for `context` tokens.

    `cancelled` is asked between pictures, and within one where its decoder allows. `prefetch` is
    told the key and grid of each image that will have to be encoded. `images` holds each image
    once. `task` is None where no picture and no option names one. `shown` has every
    picture, equal ones too.
    """

    engine: Engine
    tokenizer: Tokenizer
    context: int
    watch: Stopwatch
    cancelled: Callable[[], bool] = lambda: False
    prefetch: Callable[[str, Grid], None] = lambda key, grid: None
    images: dict[str, PreparedImage] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    task: Task | None = None
    shown: Shown = NOTHING_SHOWN

    def prepare(
        self, messages: Sequence[Message], options: ImageOptions
    ) -> Generator[None, None, list[Message]]:
        """The turns with prepared images. Gives way after each picture.

        Raises ImageError with the picture's `index`, ContextOverflow, OptionError, Cancelled.
        """
        texts = [part for turn in messages for part in turn.content if isinstance(part, str)]
        texts += [call.arguments for turn in messages for call in turn.tool_calls]
        with self.watch.stage("prefill"):
            num_tokens = least_tokens(texts, self.tokenizer, self.context, self._check)
        self._check_room(num_tokens)
        found: list[list[Any]] = []
        number = 0
        for message in messages:
            question = text_of(message)
            found.append([])
            for part in message.content:
                if isinstance(part, str | PreparedImage):
                    found[-1].append(part)
                    num_tokens += part.num_tokens if isinstance(part, PreparedImage) else 0
                    self._check_room(num_tokens)
                    continue
                self._check()
                with _numbered(number):
                    image = self._find(part, question, options)
                number += 1
                num_tokens += image.least_tokens
                self._check_room(num_tokens)
                found[-1].append(image)
                yield
        if options.video != VideoOptions() and not _has(FoundVideo, found):
            raise OptionError(
                "fps, num_frames, min_frames, max_frames, start and end are options of videos, and "
                "there is none; leave them out"
            )
        if options.pdf != PdfOptions() and not _has(FoundPdf, found):
            raise OptionError(
                "pages and text_layer are options of PDFs, and there is none; leave them out"
            )
        known: dict[Hashable, Parts] = {}
        given: list[PreparedImage] = []  # every picture in order, equal ones too
        tasks = TaskFinder(options.task)
        number = 0
        turns = []
        for message, parts in zip(messages, found, strict=True):
            content: list[Any] = []
            for part in parts:
                wanted: Task = options.task
                prepared: Parts = (part,)
                if isinstance(part, Found):
                    wanted, identity = part.options.task, part.identity
                    if identity not in known:
                        self._check()
                        with _numbered(number):
                            known[identity] = prepare_part(
                                part, self.engine, self.watch, self._check
                            )
                        yield
                    number += 1
                    prepared = known[identity]
                for one in prepared:
                    if isinstance(one, PreparedImage):
                        given.append(one)
                        tasks.add_picture(one.task, wanted)
                        if one.key not in self.images and isinstance(one.content, Patches):
                            self.prefetch(one.key, one.grid)
                        one = self.images.setdefault(one.key, one)
                    content.append(one)
            turns.append(replace(message, content=tuple(content)))
        self._check()
        self.warnings, self.task = warnings_of(given), tasks.found(messages)
        self.shown = _shown(turns)
        return turns

    def _find(self, part: Any, question: str, options: ImageOptions) -> Found:
        picked = part if isinstance(part, ImagePart) else ImagePart(part)
        chosen, context = picked.options or options, self.context
        return find_part(
            picked.source, question, chosen, self.engine, self.watch, context, self._check
        )

    def _check(self) -> None:
        if self.cancelled():
            raise Cancelled("the request was cancelled")

    def _check_room(self, num_tokens: int) -> None:
        if num_tokens >= self.context:
            raise ContextOverflow(num_tokens, self.context - 1, at_least=True)


def _shown(turns: Sequence[Message]) -> Shown:
    """The pictures of prepared turns."""
    by_turn = [
        [part.size for part in turn.content if isinstance(part, PreparedImage)] for turn in turns
    ]
    sizes = tuple(size for turn in by_turn for size in turn)
    num_last = next((len(turn) for turn in reversed(by_turn) if turn), 0)
    return Shown(sizes, len(sizes) - num_last, num_last > 1)


def _has(kind: type, turns: Sequence[Sequence[Any]]) -> bool:
    return any(isinstance(part, kind) for parts in turns for part in parts)


@contextmanager
def _numbered(number: int) -> Iterator[None]:
    """Give an ImageError the number of its picture."""
    try:
        yield
    except ImageError as error:
        error.index = number
        raise
