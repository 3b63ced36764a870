"""Work items: what one row is about. A picture, a page of a document or a moment of a film."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from qwink.errors import QwinkError
from qwink.types import ImageSource


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One thing of a file to ask about.

    `read` gives it. It is called once, in one of the threads that decode, and raises ImageError.
    """

    read: Callable[[], ImageSource]
    page: int | None = None  # from 1
    time_s: float | None = None
    file: str | None = None  # its path, by which another process can find it again

    @property
    def place(self) -> str:
        """What tells it from the other parts of its file."""
        if self.page is not None:
            return f"#page={self.page}"
        return "" if self.time_s is None else f"#t={self.time_s:g}"


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A part with what is asked about it.

    `id` is what a resumed run goes by. `question` is None where the batch's own is meant.
    """

    id: str
    source: str  # as the user gave it
    part: Part
    question: str | None = None

    @classmethod
    def of(
        cls, part: Part, source: str, question: str | None = None, given_id: str | None = None
    ) -> Item:
        """The item, with an id made of source, place and question unless there is one."""
        name = given_id or source
        if question is not None and given_id is None:
            name += f"?q={hashlib.sha256(question.encode('utf-8', 'replace')).hexdigest()[:8]}"
        return cls(name + part.place, source, part, question)

    def asking(self, question: str | None) -> Item:
        """The same item with another question."""
        return replace(self, question=question)


def failing(error: QwinkError) -> Part:
    """A part that cannot be read: its row has the error."""

    def read() -> ImageSource:
        raise error

    return Part(read)
