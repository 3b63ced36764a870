"""The turns of a conversation with their images prepared, and what follows for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qwink.engine.base import Engine
from qwink.errors import ImageError
from qwink.inputs.budget import asked_task
from qwink.runtime.messages import Picked, text_of
from qwink.runtime.preparation import ImageOptions, PreparedImage, prepare_image
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import Message, Task


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTurns:
    """`images` holds each image once; `task` is None where no picture and no option names one."""

    turns: tuple[Message, ...]
    images: tuple[PreparedImage, ...]
    warnings: tuple[str, ...]
    task: Task | None


def prepare_turns(
    messages: Sequence[Message], options: ImageOptions, engine: Engine, watch: Stopwatch
) -> PreparedTurns:
    """Fetch, decode and resize the pictures of a conversation.

    An image is sized for the text of its own turn. Raises ImageError, which has the image's
    number, and OptionError.
    """
    images: dict[str, PreparedImage] = {}
    given: list[PreparedImage] = []  # every picture in order, equal ones too
    tasks = _TaskFinder(options.task)

    def prepare_part(part: Any, question: str) -> PreparedImage:
        picked = part if isinstance(part, Picked) else Picked(part)
        image: Any = picked.source
        chosen = picked.options or options
        if not isinstance(image, PreparedImage):
            try:
                image = prepare_image(image, question, chosen, engine, watch)
            except ImageError as error:
                error.index = len(given)
                raise
        given.append(image)
        tasks.add_picture(image.task, chosen.task)
        return images.setdefault(image.key, image)

    turns = []
    for message in messages:
        question = text_of(message)
        parts = [
            part if isinstance(part, str) else prepare_part(part, question)
            for part in message.content
        ]
        turns.append(Message(message.role, tuple(parts)))
    task = tasks.found(messages)
    return PreparedTurns(tuple(turns), tuple(images.values()), _warnings_of(given), task)


class _TaskFinder:
    """Which task a conversation's last question is, as `choose_budget` resolves "auto"."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._of_last_picture: Task | None = None
        self._has_pictures = False

    def add_picture(self, found: Task | None, wanted: Task) -> None:
        """A picture's resolved task, and the one that was asked for it, such as by `detail`."""
        self._has_pictures = True
        if wanted == self._task:
            self._of_last_picture = found

    def found(self, messages: Sequence[Message]) -> Task | None:
        """By the words of the last question, else by the last picture. None without pictures."""
        if not self._has_pictures and self._task == "auto":
            return None
        question = next((text_of(turn) for turn in reversed(messages) if turn.role == "user"), "")
        return asked_task(self._task, question) or self._of_last_picture


def _warnings_of(images: Sequence[PreparedImage]) -> tuple[str, ...]:
    """The warnings about pictures, each once; with a number if there are several pictures."""
    found: dict[str, None] = {}
    for number, image in enumerate(images, 1):
        for warning in image.warnings:
            nameless = len(images) > 1 and warning.startswith("the ")
            found[f"image {number} of {len(images)}: {warning}" if nameless else warning] = None
    return tuple(found)
