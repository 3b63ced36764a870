"""Turns of a conversation, made of what users give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from qwink.errors import PromptError
from qwink.runtime.preparation import ImageOptions
from qwink.types import Event, ImageSource, Message, Result, Task

# The question that is asked when the user gives none.
DEFAULT_QUESTIONS: dict[Task, str] = {
    "auto": "Describe this picture.",
    "describe": "Describe this picture.",
    "frame": "Describe this picture.",
    "ocr": "Read all the text in the picture.",
    "document": "Convert this document to Markdown.",
    "locate": "Locate every object; answer with their bbox_2d and label as JSON.",
}


@dataclass(frozen=True, slots=True, eq=False)
class ImagePart:
    """An image source in a message. It marks a path as an image: a plain string is text.

    `options`, if given, replace those of the request.
    """

    source: ImageSource
    options: ImageOptions | None = None


def as_list(images: ImageSource | Sequence[ImageSource] | None) -> list[Any]:
    """One image, several or none, as a list."""
    if images is None:
        return []
    return list(images) if isinstance(images, list | tuple) else [images]


def user_message(
    images: ImageSource | Sequence[ImageSource] | None, question: str | None, task: Task
) -> Message:
    """A turn of images and then the question; without one, the task's default question.

    Raises PromptError if there is neither.
    """
    pictures = [ImagePart(source) for source in as_list(images)]
    if question is not None and not isinstance(question, str):
        raise PromptError(f"the question is of type {type(question).__name__}; give a text")
    if question is None and not pictures:
        raise PromptError("nothing to answer; give a picture, a question or both")
    return Message("user", (*pictures, question or DEFAULT_QUESTIONS[task]))


def text_of(message: Message) -> str:
    return "\n".join(part for part in message.content if isinstance(part, str))


def last_result(events: Iterator[Event]) -> Result:
    result = None
    for event in events:
        result = event.result
    assert result is not None, "a stream ends with its result or raises"
    return result
