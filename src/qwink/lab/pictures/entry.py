"""A picture that can be made, and what is asked about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import PIL.Image

from qwink.types import Task

Make = Callable[[], PIL.Image.Image]


@dataclass(frozen=True, slots=True)
class Entry:
    """`follow_up` is asked where the same picture comes again.

    `answer` is None where the question has no single true one.
    """

    name: str  # unique; the file's stem
    kind: str
    task: Task
    question: str
    follow_up: str
    answer: str | None
    make: Make
    suffix: str = ".png"  # of the file: .png or .jpg
