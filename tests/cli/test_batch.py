"""Tests of `qwink batch`, in processes."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tests.batches.conftest import draw
from tests.conftest import RunQwink

SHORT = ("-q", "What is this?", "--max-tokens", 4, "--temperature", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        draw(tmp_path / "scans" / f"{number}.png", f"#{number * 40 + 20:02x}0000")
    return tmp_path / "scans"


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_rows_on_stdout(qwink: RunQwink, folder: Path) -> None:
    ran = qwink("batch", folder, *SHORT)
    assert ran.code == 0, ran.err
    assert sorted(row["id"] for row in lines(ran.out)) == sorted(map(str, folder.iterdir()))
    assert all(row["finish_reason"] for row in lines(ran.out))
    assert "qwink: 4 rows in " in ran.err


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_the_same_command_goes_on(qwink: RunQwink, folder: Path, suffix: str) -> None:
    out = folder.parent / f"out.{suffix}"
    command = ("batch", folder, *SHORT, "--out", out)
    assert qwink(*command, "--limit", 3).code == 0
    ran = qwink(*command)
    assert "qwink: 1 row in " in ran.err
    assert "; rows from before: 3" in ran.err
    assert "nothing to do; rows from before: 4" in qwink(*command).err
    if suffix == "jsonl":
        found = [row["source"] for row in lines(out.read_text("utf-8"))]
    elif suffix == "csv":
        with out.open(newline="", encoding="utf-8") as file:
            found = [row["source"] for row in csv.DictReader(file)]
    else:
        found = pyarrow.parquet.read_table(out).column("source").to_pylist()
    assert sorted(found) == sorted(map(str, folder.iterdir()))


def test_errors_are_code_3_and_can_be_retried(qwink: RunQwink, folder: Path) -> None:
    (folder / "bad.png").write_bytes(b"bad")
    out = folder.parent / "out.jsonl"
    command = ("batch", folder, *SHORT, "--out", out)
    for _ in range(2):  # the second run has nothing to do, and the error is still there
        ran = qwink(*command)
        assert ran.code == 3
        assert "rows with an error: 1; --retry-errors" in ran.err
    draw(folder / "bad.png", "white")
    ran = qwink(*command, "--where", "errors")
    assert ran.code == 0, ran.err
    assert len(lines(out.read_text("utf-8"))) == 5
    (folder / "bad.png").write_bytes(b"bad")
    assert "nothing to do" in qwink(*command, "--retry-errors").err


def test_other_questions_are_refused(qwink: RunQwink, folder: Path) -> None:
    out = folder.parent / "out.jsonl"
    assert qwink("batch", folder, *SHORT, "--out", out).code == 0
    before = out.read_bytes()
    ran = qwink("batch", folder, "-q", "Why?", "--max-tokens", 4, "--out", out)
    assert ran.code == 2
    assert "question 'What is this?', now 'Why?'" in ran.err
    assert out.read_bytes() == before


def test_a_list_on_stdin(qwink: RunQwink, folder: Path) -> None:
    listed = f"{folder}/0.png\n{folder}/gone.png\n".encode()
    ran = qwink("batch", "-", *SHORT, stdin=listed)
    assert ran.code == 3
    rows = {Path(row["source"]).name: row for row in lines(ran.out)}
    assert rows["0.png"]["finish_reason"]
    assert "no such file" in rows["gone.png"]["error"]


def test_a_table_with_questions(qwink: RunQwink, folder: Path) -> None:
    table = folder / "list.csv"
    table.write_text("nr,photo,ask\n1,0.png,Why?\n2,0.png,What?\n")
    columns = ("--column", "photo", "--question-column", "ask", "--id-column", "nr")
    ran = qwink("batch", table, *columns, "--max-tokens", 4)
    assert ran.code == 0, ran.err
    assert {row["id"]: row["question"] for row in lines(ran.out)} == {"1": "Why?", "2": "What?"}


def test_answers_in_a_shape(qwink: RunQwink, folder: Path) -> None:
    out = folder.parent / "out.csv"
    schema = '{"enum": ["red", "blue"]}'
    ran = qwink("batch", folder / "0.png", "--schema", schema, "--out", out)
    assert ran.code == 0, ran.err
    with out.open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert json.loads(row["parsed"]) in ("red", "blue")
    ran = qwink("batch", folder / "0.png", "--choices", "red,blue")
    (found,) = lines(ran.out)
    assert set(found["choices"]) == {"red", "blue"}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "no source"),
        (("gone",), "no such file or folder"),
        (("gone/*.png",), "nothing matches"),
        ((".", "--limit", "0"), "limit is 0"),
        ((".", "--concurrency", "0"), "concurrency is 0"),
        ((".", "--near-duplicates", "65"), "--near-duplicates"),
        ((".", "--where", "errors"), "--out"),
        ((".", "--out", "x.xlsx"), ".parquet"),
        ((".", "--temperature", "-1"), "temperature"),
    ],
)
def test_wrong_usage(qwink: RunQwink, arguments: tuple[str, ...], word: str) -> None:
    ran = qwink("batch", *arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1, ran.err
    assert word in ran.err


def start(folder: Path, out: Path, home: Path, model: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "qwink", "batch", str(folder), "--out", str(out)]
    command += [*map(str, SHORT), "--model", str(model), "--threads", "1"]
    return subprocess.Popen(
        command,
        env=os.environ | {"QWINK_HOME": str(home)},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for_rows(out: Path, process: subprocess.Popen[bytes], number: int) -> None:
    while process.poll() is None and not (out.exists() and out.read_bytes().count(b"\n") >= number):
        time.sleep(0.005)


def test_killed_three_times_every_picture_has_one_row(
    tmp_path: Path, tiny_home: Path, tiny_checkpoint: tuple[Path, Any]
) -> None:
    folder, out = tmp_path / "scans", tmp_path / "out.jsonl"
    for number in range(60):
        draw(folder / f"{number:02}.png", f"#{number * 4:02x}8000")
    killed = 0
    for at_least in (5, 20, 35):
        process = start(folder, out, tiny_home, tiny_checkpoint[0])
        wait_for_rows(out, process, at_least)
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        with out.open("ab") as file:  # a line that was being written
            file.write(b'{"id": "torn')
    assert killed == 3
    process = start(folder, out, tiny_home, tiny_checkpoint[0])
    _, err = process.communicate()
    assert process.returncode == 0, err
    names = Counter(Path(row["id"]).name for row in lines(out.read_text("utf-8")))
    assert names == {f"{number:02}.png": 1 for number in range(60)}


def test_an_interrupt_says_how_to_go_on(
    tmp_path: Path, tiny_home: Path, tiny_checkpoint: tuple[Path, Any]
) -> None:
    folder, out = tmp_path / "scans", tmp_path / "out.csv"
    for number in range(60):
        draw(folder / f"{number:02}.png", f"#{number * 4:02x}8000")
    process = start(folder, out, tiny_home, tiny_checkpoint[0])
    wait_for_rows(tmp_path / "out.csv.batch" / "rows.jsonl", process, 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b" in " + str(out).encode() + b"; the same command goes on" in err
    assert b"Traceback" not in err
    with out.open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) >= 3
