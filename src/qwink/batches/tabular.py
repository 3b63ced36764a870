"""Rows as CSV and Parquet: whole files, made of the rows at the end of a run."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from qwink.batches.rows import FLAT_COLUMNS, TIMINGS, USAGE, Row, flat
from qwink.batches.tables import import_parquet

ROWS_PER_GROUP = 10_000


def write_table(rows: Iterable[Row], path: Path) -> None:
    """Write a CSV or Parquet file, by the path's suffix. The file is replaced when it is whole."""
    temporary = path.with_name(path.name + ".partial")
    write = _write_csv if path.suffix.lower() == ".csv" else _write_parquet
    try:
        write(rows, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_csv(rows: Iterable[Row], path: Path) -> None:
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.DictWriter(file, FLAT_COLUMNS)
        writer.writeheader()
        for row in rows:
            values = flat(row)
            writer.writerow(values | {"warnings": "; ".join(row.warnings)})
        file.flush()
        os.fsync(file.fileno())


def _write_parquet(rows: Iterable[Row], path: Path) -> None:
    parquet = import_parquet()
    import pyarrow

    texts, numbers = pyarrow.string(), pyarrow.float64()
    kinds = dict.fromkeys(FLAT_COLUMNS, texts)
    kinds |= {"page": pyarrow.int64(), "time_s": numbers, "warnings": pyarrow.list_(texts)}
    kinds |= dict.fromkeys(USAGE, pyarrow.int64()) | dict.fromkeys(TIMINGS, numbers)
    schema = pyarrow.schema(list(kinds.items()))
    with parquet.ParquetWriter(path, schema) as writer:
        for group in _groups(rows):
            columns = {name: [values[name] for values in group] for name in FLAT_COLUMNS}
            writer.write_table(pyarrow.Table.from_pydict(columns, schema=schema))


def _groups(rows: Iterable[Row]) -> Iterator[list[dict[str, Any]]]:
    """Rows as columns, a part of the file at a time. Texts that are not Unicode are escaped."""
    remaining = iter(rows)
    while group := list(islice(remaining, ROWS_PER_GROUP)):
        yield [_unicode(flat(row)) for row in group]


def _unicode(values: dict[str, Any]) -> dict[str, Any]:
    warnings = [str(text) for text in values["warnings"]]
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    escaped = {
        name: text.encode("utf-8", "backslashreplace").decode() for name, text in texts.items()
    }
    return values | escaped | {"warnings": warnings}


# The kinds of tables, each with what raises OptionError where its library is missing.
SUFFIXES: dict[str, Callable[[], Any]] = {".csv": lambda: None, ".parquet": import_parquet}
