"""What prepared pictures say of the whole request: its task, and the warnings of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from qwink.inputs.budget import asked_task
from qwink.runtime.messages import text_of
from qwink.runtime.preparation import PreparedImage
from qwink.types import Message, Task


class TaskFinder:
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


def warnings_of(images: Sequence[PreparedImage]) -> tuple[str, ...]:
    """The warnings about pictures, each once; with a number if there are several pictures."""
    found: dict[str, None] = {}
    for number, image in enumerate(images, 1):
        for warning in image.warnings:
            nameless = len(images) > 1 and warning.startswith("the ")
            found[f"image {number} of {len(images)}: {warning}" if nameless else warning] = None
    return tuple(found)
