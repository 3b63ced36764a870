"""One row of the output: what was asked, the answer or why there is none, and what it took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from qwink.types import STAGES, FinishReason, Result, Usage

USAGE = tuple(field.name for field in fields(Usage))
TIMINGS = (
    "read_ms",
    "queue_ms",
    *(f"{stage}_ms" for stage in STAGES),
    "first_token_ms",
    "total_ms",
)


@dataclass(frozen=True, slots=True)
class Row:
    """The answer to one item; `error` and `skipped` say why there is none.

    `same_as` is the id of the item whose answer this is: an identical or a near-duplicate picture.
    `read_ms` of the timings is the time to read the file. `sha256` is of the file's bytes (of a
    picture in memory, its pixels'); `dhash` is its difference hash where duplicates were looked
    for, in hexadecimal.
    """

    id: str
    source: str
    question: str
    page: int | None = None
    time_s: float | None = None
    answer: str | None = None
    parsed: Any = None
    finish_reason: FinishReason | None = None
    warnings: tuple[str, ...] = ()
    error: str | None = None
    error_type: str | None = None
    same_as: str | None = None
    skipped: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    sha256: str | None = None
    dhash: str | None = None

    def answered(self, result: Result, read_s: float) -> Row:
        """This row with an answer."""
        timings = {
            name: round(getattr(result.timings, name), 3) for name in TIMINGS if name != "read_ms"
        }
        return replace(
            self,
            answer=result.text,
            finish_reason=result.finish_reason,
            warnings=result.warnings,
            usage=asdict(result.usage),
            timings={"read_ms": round(read_s * 1e3, 3)} | timings,
        )

    def failed(self, error: BaseException) -> Row:
        """This row with an error."""
        text = " ".join(str(error).split()) or type(error).__name__
        return replace(self, error=text, error_type=type(error).__name__)

    def copied(self, original: Row) -> Row:
        """This row with the answer of another; it took neither time nor tokens."""
        return replace(
            self,
            answer=original.answer,
            parsed=original.parsed,
            finish_reason=original.finish_reason,
            warnings=original.warnings,
            same_as=original.id,
        )

    def line(self) -> bytes:
        """The row as a line of JSON."""
        return as_line(asdict(self))

    @classmethod
    def of_document(cls, values: Mapping[str, Any]) -> Row:
        """The inverse of `line`. Raises LookupError, TypeError or ValueError."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**{**known, "warnings": tuple(known.get("warnings") or ())})


def as_line(document: Mapping[str, Any]) -> bytes:
    """A line of JSON in UTF-8. File names that are not UTF-8 are written as \\udc80 and so on."""
    try:
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(document).encode() + b"\n"


def flat(row: Row) -> dict[str, Any]:
    """The row with a column for each number, for CSV and Parquet."""
    document = asdict(row)
    usage, timings = document.pop("usage"), document.pop("timings")
    parsed = None if row.parsed is None else json.dumps(row.parsed, ensure_ascii=False)
    return (
        document
        | {"parsed": parsed}
        | {name: usage.get(name) for name in USAGE}
        | {name: timings.get(name) for name in TIMINGS}
    )


FLAT_COLUMNS = tuple(flat(Row("", "", "")))
