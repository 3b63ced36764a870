"""A picture of the catalogue, and the questions about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import PIL.Image

from qwink.types import Task

Make = Callable[[], PIL.Image.Image]


@dataclass(frozen=True, slots=True)
class Entry:
    """`follow_up` is the question when the picture is repeated.

    `answer` is None if the question has no single correct answer.
    """

    name: str  # unique; the file's stem
    kind: str
    task: Task
    question: str
    follow_up: str
    answer: str | None
    make: Make
    suffix: str = ".png"  # of the file: .png or .jpg
