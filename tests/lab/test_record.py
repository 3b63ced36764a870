"""Result files: what is written is read back, and the committed ones are readable."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qwink.errors import OptionError
from qwink.lab.record import Record, parse, read, record, write

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


@dataclass(frozen=True)
class Lengths:
    unit: str
    values: tuple[int, ...]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written = record("lengths", Lengths("mm", (1, 2)))
    path = tmp_path / "new folder" / "lengths.json"
    write(path, written.document())
    found = read(path)
    assert (found.kind, found.facts) == ("lengths", written.facts)
    assert found.measured == {"unit": "mm", "values": [1, 2]}
    assert json.dumps(found.document()) == json.dumps(json.loads(path.read_text("utf-8")))


def test_facts_may_be_missing() -> None:
    assert parse(Record("old", None, {"a": 1}).document()) == Record("old", None, {"a": 1})


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_results_have_this_format(path: Path) -> None:
    found = read(path)
    assert path.stem.split("-")[0] == found.kind
    assert json.dumps(found.document()) == json.dumps(json.loads(path.read_text("utf-8")))


@pytest.mark.parametrize(
    "document", [[], 7, {}, {"kind": "x"}, {"kind": "x", "facts": {}}, {"kind": "x", "facts": [1]}]
)
def test_other_documents_are_refused(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document))
    with pytest.raises(OptionError, match=r"other\.json: not a result of qwink bench"):
        read(path)
    path.write_text("{")
    with pytest.raises(OptionError, match="not a result"):
        read(path)
