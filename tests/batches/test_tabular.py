"""Tests of CSV and Parquet output."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from qwink.batches import tabular
from qwink.batches.ledger import Ledger
from qwink.batches.rows import FLAT_COLUMNS, Row
from qwink.errors import OptionError

ROWS = [
    Row(
        "a",
        "a.pdf",
        "Q",
        page=2,
        answer='two\nlines, "quoted"',
        parsed={"total": 1.5},
        warnings=("one", "two"),
        usage={"prompt_tokens": 7},
        timings={"total_ms": 1.25},
    ),
    Row("b", "b.mp4", "Q", time_s=2.5, error="broken", error_type="ImageError"),
]


def test_csv(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    tabular.write_table(ROWS, out)
    with out.open(newline="", encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert tuple(first) == FLAT_COLUMNS
    assert first["answer"] == ROWS[0].answer
    assert (first["page"], first["prompt_tokens"], first["total_ms"]) == ("2", "7", "1.25")
    assert first["warnings"] == "one; two"
    assert first["parsed"] == '{"total": 1.5}'
    assert (second["answer"], second["error"], second["time_s"]) == ("", "broken", "2.5")


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "ROWS_PER_GROUP", 1)
    out = tmp_path / "rows.parquet"
    tabular.write_table([*ROWS, Row("\udce9.png", "s", "Q")], out)
    table = pyarrow.parquet.read_table(out)
    first, second, third = table.to_pylist()
    assert tuple(first) == FLAT_COLUMNS
    assert first["warnings"] == ["one", "two"]
    assert (first["page"], first["prompt_tokens"], first["total_ms"]) == (2, 7, 1.25)
    assert (second["answer"], second["time_s"]) == (None, 2.5)
    assert third["id"] == "\\udce9.png"
    assert pyarrow.parquet.ParquetFile(out).num_row_groups == 3


def test_a_failed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    tabular.write_table(ROWS, out)
    before = out.read_bytes()

    def failing() -> list[Row]:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        tabular.write_table((row for _ in (1,) for row in failing()), out)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


def test_a_missing_library_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(OptionError, match="pip install"):
        Ledger(tmp_path / "rows.parquet", {})
    Ledger(tmp_path / "rows.csv", {})
