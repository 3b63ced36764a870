"""Tests of the file of rows: whole lines, one writer, one kind of rows."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qwink.batches.ledger import Ledger
from qwink.batches.rows import Row
from qwink.errors import OptionError

SETTINGS = {"model": "m", "question": "Q", "options": {"max_tokens": 8}}


def write(out: Path, *names: str, settings: dict[str, Any] | None = None) -> list[str]:
    """Append rows of these ids; the ids that were there before."""
    ledger = Ledger(out, settings or SETTINGS)
    ledger.open()
    before = [row.id for row in ledger.rows()]
    for name in names:
        ledger.append(Row(name, name, "Q", answer="yes"))
    ledger.close()
    return before


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_rows_are_found_again(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    assert write(out, "a", "b") == []
    assert write(out, "c\nwith a break") == ["a", "b"]
    assert write(out) == ["a", "b", "c\nwith a break"]


def test_names_that_are_not_unicode(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    write(tmp_path / "rows.jsonl", name)
    write(tmp_path / "rows.csv", name)
    assert write(tmp_path / "rows.jsonl") == [name]
    assert b"caf\xe9.png" in (tmp_path / "rows.csv").read_bytes()


@pytest.mark.parametrize("torn", [b'{"id": "c", "sou', b"\x00" * 200_000, b"{"])
def test_a_torn_last_line_is_cut(tmp_path: Path, torn: bytes) -> None:
    out = tmp_path / "rows.jsonl"
    write(out, "a", "b")
    whole = out.read_bytes()
    out.write_bytes(whole + torn)
    assert write(out, "c") == ["a", "b"]
    assert out.read_bytes().startswith(whole)
    assert write(out) == ["a", "b", "c"]


def test_a_file_of_one_torn_line(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    write(out)
    out.write_bytes(b'{"id": "a"')
    assert write(out, "b") == []
    assert write(out) == ["b"]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    write(out, "a")
    out.write_bytes(out.read_bytes() + b"1\n")
    with pytest.raises(OptionError, match="line 2"):
        write(out)


def test_a_file_of_another_origin_is_left_alone(tmp_path: Path) -> None:
    for name in ("mine.jsonl", "mine.csv"):
        out = tmp_path / name
        out.write_text("precious\n")
        with pytest.raises(OptionError, match="choose another"):
            write(out, "a")
        assert out.read_text() == "precious\n"


def test_other_settings_are_named(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    write(out, "a")
    other = {"model": "n", "question": "Q", "options": {"max_tokens": 9, "task": "ocr"}}
    with pytest.raises(OptionError) as caught:
        write(out, settings=other)
    for words in ("model 'm', now 'n'", "max_tokens 8, now 9", "task None, now 'ocr'"):
        assert words in str(caught.value)
    assert "question" not in str(caught.value)


def test_settings_may_change_while_there_are_no_rows(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    write(out)
    write(out, "a", settings={"model": "other"})


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    code = (
        "import sys\nfrom pathlib import Path\nfrom qwink.batches.ledger import Ledger\n"
        f"ledger = Ledger(Path(sys.argv[1]), {SETTINGS!r})\n"
        "ledger.open()\nprint('open', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(OptionError, match="another qwink batch"):
            write(out, "a")
        other.kill()
    assert write(out, "a") == []


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "rows.jsonl"
    write(out, "a")
    ledger = Ledger(out, SETTINGS)
    ledger.open()
    real = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 10:
            return real(file, data[: len(data) - 10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        ledger.append(Row("b", "b", "Q"))
    monkeypatch.undo()
    ledger.append(Row("c", "c", "Q"))
    ledger.close()
    assert write(out) == ["a", "c"]
