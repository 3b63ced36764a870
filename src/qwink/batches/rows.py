"""One row of the output: what was asked, the answer or why there is none, and what it took."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
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
    """The answer to one item; `error` and `skipped` say why there is none."""

    id: str
    """What the item is called, once in a file: its source, with the page or time and a hash of its
    own question; or what the user gave."""
    source: str
    """Where the picture is, as the user gave it."""
    question: str
    """What was asked."""
    page: int | None = None
    """Page of a document, from 1."""
    time_s: float | None = None
    """Second of a video."""
    answer: str | None = None
    """The answer."""
    parsed: Any = None
    """The answer as data, as in `Result`."""
    choices: dict[str, float] | None = None
    """The choices to answer with and their probabilities, if there were any."""
    finish_reason: FinishReason | None = None
    """Why the answer ended, as in `Result`."""
    warnings: tuple[str, ...] = ()
    """What may make the answer wrong."""
    error: str | None = None
    """Why there is no answer."""
    error_type: str | None = None
    """The class of the error."""
    same_as: str | None = None
    """The id of the item whose answer this is: an identical picture or a near duplicate."""
    skipped: str | None = None
    """Why the item was not asked about: "blank"."""
    usage: dict[str, int] = field(default_factory=dict)
    """Counts of tokens, as in `Usage`; empty without an answer of its own."""
    timings: dict[str, float] = field(default_factory=dict)
    """Milliseconds, as in `Timings`, and `read_ms`, reading the file."""
    sha256: str | None = None
    """Hash of the file's bytes; of a picture in memory, of its pixels."""
    dhash: str | None = None
    """Difference hash in hexadecimal, if near duplicates were looked for."""

    def answered(self, result: Result, read_s: float) -> Row:
        """This row with an answer."""
        timings = {
            name: round(getattr(result.timings, name), 3) for name in TIMINGS if name != "read_ms"
        }
        return replace(
            self,
            answer=result.text,
            parsed=result.parsed,
            choices={each.text: each.probability for each in result.choices} or None,
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
            choices=original.choices,
            finish_reason=original.finish_reason,
            warnings=original.warnings,
            same_as=original.id,
        )

    def line(self) -> bytes:
        """The row as a line of JSON."""
        return as_line(self.document())

    def document(self) -> dict[str, Any]:
        """The row as JSON has it."""
        return asdict(replace(self, parsed=None)) | {"parsed": plain(self.parsed)}

    @classmethod
    def of_document(cls, values: Mapping[str, Any]) -> Row:
        """The inverse of `line`. Raises LookupError, TypeError or ValueError."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**{**known, "warnings": tuple(known.get("warnings") or ())})


def plain(value: Any) -> Any:
    """What `Result.parsed` holds, as JSON has it: without dataclasses and pydantic's models."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def as_line(document: Mapping[str, Any]) -> bytes:
    """A line of JSON in UTF-8. File names that are not UTF-8 are written as \\udc80 and so on."""
    try:
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(document).encode() + b"\n"


def flat(row: Row) -> dict[str, Any]:
    """This row with a column for each number, for CSV and Parquet."""
    document = row.document()
    usage, timings = document.pop("usage"), document.pop("timings")
    nested = {
        name: None if document[name] is None else json.dumps(document[name], ensure_ascii=False)
        for name in ("parsed", "choices")
    }
    return (
        document
        | nested
        | {name: usage.get(name) for name in USAGE}
        | {name: timings.get(name) for name in TIMINGS}
    )


FLAT_COLUMNS = tuple(flat(Row("", "", "")))
