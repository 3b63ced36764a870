"""Tables that name pictures, one a row: JSONL, CSV, Parquet, and lists of paths."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from qwink.errors import OptionError
from qwink.extras import install_command

# Columns that are taken for the path, where the user names none. The first that is there wins.
PATHS = ("image", "path", "file", "file_name", "filename", "source", "image_path", "picture")


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of columns. `path` None: the first of PATHS; questions and ids may be missing."""

    path: str | None = None
    question: str = "question"
    id: str = "id"


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a table: where the picture is, and what else the row says. `error`: what is wrong
    with the row; then `path` names its place.
    """

    path: str
    question: str | None = None
    id: str | None = None
    error: str | None = None


def is_table(path: str) -> bool:
    return PurePath(path).suffix.lower() in _READERS


def is_url(path: str) -> bool:
    return "://" in path[:16] or path[:5].lower() == "data:"


def read_table(path: Path, columns: Columns) -> Iterator[Entry]:
    """The rows of a table. Relative paths in it are relative to its folder.

    Raises OptionError if the table cannot be read or has no column of paths.
    """
    try:
        for entry in _READERS[path.suffix.lower()](path, columns):
            yield _beside(entry, path.parent)
    except (OSError, UnicodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"{path}: cannot be read: {reason}") from None


def read_lines(lines: Iterable[str], columns: Columns, name: str) -> Iterator[Entry]:
    """Lines of a list: each a path, or a JSON object as in JSONL. Empty lines are skipped."""
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if line.startswith("{"):
            yield _of_json(line, columns, f"{name}:{number}")
        elif line:
            yield Entry(line)


def _beside(entry: Entry, folder: Path) -> Entry:
    if entry.error or is_url(entry.path) or PurePath(entry.path).is_absolute():
        return entry
    return Entry(str(folder / entry.path), entry.question, entry.id)


def _list(path: Path, columns: Columns) -> Iterator[Entry]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
        yield from read_lines(file, columns, str(path))


def _jsonl(path: Path, columns: Columns) -> Iterator[Entry]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _of_json(line, columns, f"{path}:{number}")


def _of_json(line: str, columns: Columns, place: str) -> Entry:
    try:
        values = json.loads(line)
    except ValueError:
        return Entry(place, error=f"{place}: not JSON; write one object a line")
    if isinstance(values, str):
        return Entry(values)
    if not isinstance(values, dict):
        return Entry(place, error=f"{place}: not an object; write one object a line")
    try:
        return _of_mapping(values, columns, place)
    except OptionError as error:
        return Entry(place, error=str(error))


def _csv(path: Path, columns: Columns) -> Iterator[Entry]:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = csv.DictReader(file, delimiter=delimiter)
        _path_column(rows.fieldnames or (), columns, str(path))
        for row in rows:
            yield _entry_or_error(row, columns, f"{path}:{rows.line_num}")


def _parquet(path: Path, columns: Columns) -> Iterator[Entry]:
    parquet = import_parquet()
    try:
        file = parquet.ParquetFile(path)
    except Exception as error:  # pyarrow's errors are of several kinds
        raise OptionError(f"{path}: not a Parquet file: {error}") from None
    with file:
        names = file.schema_arrow.names
        wanted = {_path_column(names, columns, str(path)), columns.question, columns.id}
        number = 0
        for batch in file.iter_batches(1000, columns=[name for name in names if name in wanted]):
            for row in batch.to_pylist():
                number += 1
                yield _entry_or_error(row, columns, f"{path}:{number}")


def import_parquet() -> Any:
    """The module pyarrow.parquet. Raises OptionError where it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise OptionError(
            "Parquet needs pyarrow; install it with: "
            f"{install_command('parquet')}, or use JSONL or CSV"
        ) from None
    return pyarrow.parquet


def _entry_or_error(values: Mapping[str, Any], columns: Columns, place: str) -> Entry:
    try:
        return _of_mapping(values, columns, place)
    except OptionError as error:
        return Entry(place, error=str(error))


def _of_mapping(values: Mapping[str, Any], columns: Columns, place: str) -> Entry:
    """Raises OptionError if the row has no path."""
    name = _path_column(values, columns, place)
    path, question, given = values[name], values.get(columns.question), values.get(columns.id)
    if isinstance(path, dict):  # as Hugging Face's data sets keep pictures
        path = path.get("path")
    if not isinstance(path, str) or not path.strip():
        raise OptionError(f"{place}: column {name!r} has no path")
    question = str(question) if question is not None and str(question).strip() else None
    return Entry(path.strip(), question, None if given in (None, "") else str(given))


def _path_column(names: Iterable[str], columns: Columns, place: str) -> str:
    there = list(names)
    wanted = PATHS if columns.path is None else (columns.path,)
    for name in wanted:
        if name in there:
            return name
    found = ", ".join(map(str, there)) or "nothing"
    raise OptionError(f"{place}: no column {' or '.join(wanted)}, but {found}; name it by --column")


_READERS: dict[str, Callable[[Path, Columns], Iterator[Entry]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
    ".txt": _list,
}
