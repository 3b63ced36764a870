"""Known answers: 48 records of 8 layouts as compact JSON, 12 pages of prose, and random text."""

from __future__ import annotations

import json
import random
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from qwink.lab.extract.records import MAKERS
from qwink.lab.extract.schemas import schema_of

Kind = Literal["json", "text", "random"]
KINDS: tuple[Kind, ...] = ("json", "text", "random")

NUM_LAYOUTS = len(MAKERS)
RECORDS_PER_LAYOUT = 6
NUM_PAGES = 12
PAGE_CHARACTERS = 1600  # about 400 tokens
RANDOM_TOKENS = 250
READ = "Read all the text."
_CODE = ("  ", ">>>", "...", "|", "+-", "::=")  # how lines begin that are no prose


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is known, and the question that it belongs to.

    `text` is None for random text, whose tokens are drawn from the vocabulary. `schema` is that of
    the record, for JSON.
    """

    kind: Kind
    name: str
    question: str
    text: str | None
    schema: dict[str, Any] | None = field(default=None, repr=False)


def answers(kind: Kind, count: int | None = None) -> list[Answer]:
    """The first `count` answers of a kind; of JSON, all layouts take turns."""
    made = {"json": _records, "text": _pages, "random": _noise}[kind]()
    return [answer for answer, _ in zip(made, range(count or 10**6), strict=False)]


def _records() -> Iterator[Answer]:
    for number in range(RECORDS_PER_LAYOUT):
        for layout, make in MAKERS.items():
            record = make(random.Random(f"{layout} {number}"))
            text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
            fields = ", ".join(record)
            question = f"Extract this {layout} as compact JSON with the fields {fields}."
            yield Answer("json", f"{layout} {number}", question, text, schema_of(layout))


def _pages() -> Iterator[Answer]:
    """Prose of Python's own reference, which comes with every Python."""
    from pydoc_data.topics import topics

    prose = "\n\n".join(_prose(topics[name]) for name in sorted(topics))
    # Pages from all over the reference, none the continuation of another.
    step = len(prose) // NUM_PAGES
    for number in range(NUM_PAGES):
        page = prose[number * step :][:PAGE_CHARACTERS]
        yield Answer("text", f"page {number}", READ, page.partition("\n\n")[2] or page)


def _prose(topic: str) -> str:
    """The paragraphs of a topic that are neither code nor headings, one line each."""
    paragraphs = topic.split("\n\n")
    kept = [
        " ".join(textwrap.dedent(one).split())
        for one in paragraphs
        if len(one) > 200 and not any(line.startswith(_CODE) for line in one.split("\n"))
    ]
    return "\n\n".join(kept)


def _noise() -> Iterator[Answer]:
    for number in range(NUM_PAGES):
        yield Answer("random", f"noise {number}", READ, None)
