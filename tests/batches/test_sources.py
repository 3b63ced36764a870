"""Tests of sources: files, folders, patterns, tables and lists become items."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from qwink.batches.items import Item
from qwink.batches.sources import Sources
from qwink.batches.tables import Columns
from qwink.errors import ImageError, OptionError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files in a folder, in a folder in it, and what is no picture."""
    for name in ("b.png", "a.JPG", "notes.txt", ".hidden.png", "deep/c.webp", ".git/d.png"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tree"


def items(*given: Any, **options: Any) -> list[Item]:
    sources = Sources(given, **options)
    sources.check()
    return list(sources)


def ids(*given: Any, **options: Any) -> list[str]:
    return [item.id for item in items(*given, **options)]


def test_folders(tree: Path) -> None:
    assert ids("tree") == ["tree/a.JPG", "tree/b.png"]
    assert ids("tree", recursive=True) == ["tree/a.JPG", "tree/b.png", "tree/deep/c.webp"]
    assert ids(tree)[0] == str(tree / "a.JPG")


def test_links_do_not_lead_in_circles(tree: Path) -> None:
    (tree / "deep" / "up").symlink_to(tree, target_is_directory=True)
    assert len(ids("tree", recursive=True)) == 3


def test_patterns_and_files(tree: Path) -> None:
    assert ids("tree/*.png") == ["tree/b.png"]
    assert ids("tree/**/*.webp") == ["tree/deep/c.webp"]
    odd = tree / "a[1].png"
    odd.write_bytes(b"odd")
    assert ids("tree/a[1].png") == ["tree/a[1].png"]


def test_parts_are_read_late(tree: Path) -> None:
    (item,) = items("tree/b.png")
    (tree / "b.png").write_bytes(b"changed")
    assert item.part.read() == b"changed"
    (tree / "b.png").unlink()
    with pytest.raises(ImageError, match=r"b\.png"):
        item.part.read()


@pytest.mark.parametrize(
    ("given", "word"), [("gone.png", "no such"), ("tree/*.gif", "matches"), ("gone", "no such")]
)
def test_sources_that_are_not_there(tree: Path, given: str, word: str) -> None:
    with pytest.raises(OptionError, match=word):
        items(given)
    with pytest.raises(OptionError, match="no source"):
        items()


ROWS = [
    {"id": "x", "image": "b.png", "question": "What?"},
    {"id": "", "image": "deep/c.webp", "question": ""},
]


def write_table(path: Path, rows: list[dict[str, str]]) -> None:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(
                file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ","
            )
            writer.writeheader()
            writer.writerows(rows)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_tables(tree: Path, suffix: str) -> None:
    write_table(tree / f"list{suffix}", ROWS)
    first, second = items(f"tree/list{suffix}")
    assert (first.id, first.source, first.question) == ("x", "tree/b.png", "What?")
    assert (second.id, second.question) == ("tree/deep/c.webp", None)
    assert first.part.read() == b"b.png"  # relative to the table's folder


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_columns_can_be_named(tree: Path, suffix: str) -> None:
    table = tree / f"list{suffix}"
    write_table(table, [{"where": "b.png", "ask": "Why?", "key": "7"}])
    (item,) = items(table, columns=Columns("where", "ask", "key"))
    assert (item.id, item.question, item.part.read()) == ("7", "Why?", b"b.png")
    if suffix != ".jsonl":
        with pytest.raises(OptionError, match=r"no column .*where, ask, key"):
            items(table)


def test_bad_rows_of_tables_are_items_with_an_error(tree: Path) -> None:
    (tree / "list.jsonl").write_text('{"image": "b.png"}\nnonsense\n{"other": 1}\n[1]\n"b.png"\n')
    found = items("tree/list.jsonl")
    assert len(found) == 5
    assert found[0].part.read() == found[4].part.read() == b"b.png"
    for item, words in zip(found[1:4], ("not JSON", "no column", "not an object"), strict=True):
        with pytest.raises(ImageError, match=words):
            item.part.read()
    assert len({item.id for item in found[:4]}) == 4


def test_a_table_that_is_none(tree: Path) -> None:
    (tree / "list.parquet").write_bytes(b"nonsense")
    with pytest.raises(OptionError, match="not a Parquet file"):
        items("tree/list.parquet")


def test_lists(tree: Path) -> None:
    (tree / "list.txt").write_text("b.png\n\ndeep/c.webp\n")
    assert ids("tree/list.txt") == ["tree/b.png", "tree/deep/c.webp"]
    lines = ["tree/b.png\n", '{"image": "tree/a.JPG", "question": "Hm?"}\n']
    first, second = items("-", lines=lines)
    assert first.id == "tree/b.png"
    assert second.question == "Hm?"


def test_questions_make_ids_different(tree: Path) -> None:
    rows = [{"image": "b.png", "question": text} for text in ("What?", "Why?", "What?")]
    write_table(tree / "list.jsonl", rows)
    found = ids("tree/list.jsonl")
    assert found[0] != found[1]
    assert found[0] == found[2]


def test_urls_are_items(tree: Path) -> None:
    data = "data:image/png;base64,AAAA"
    first, second = items({"image": data}, {"image": "https://example.com/a.png"})
    assert first.part.read() == data
    assert len(first.source) < 30
    assert second.id == "https://example.com/a.png"
    with pytest.raises(OptionError, match="'image'"):
        items({"picture": "a.png"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_an_error_row(tree: Path) -> None:
    (tree / "deep").chmod(0)
    try:
        *_, last = items("tree", recursive=True)
        with pytest.raises(ImageError, match="deep"):
            last.part.read()
    finally:
        (tree / "deep").chmod(0o755)
