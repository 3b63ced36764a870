"""Tests of `qwink.batch`: every item has one row, whatever happens."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qwink
from qwink.batches.items import Item, Part
from qwink.batches.progress import Progress
from qwink.batches.rows import Row
from qwink.errors import ImageError, OptionError
from qwink.runtime.vlm import VLM
from tests.batches.conftest import COLOURS, draw

QUESTION = "What colour is the circle?"


def run(nano: VLM, *sources: Any, question: str | None = QUESTION, **options: Any) -> list[Row]:
    given: dict[str, Any] = {"max_tokens": 8, "temperature": 0.0} | options
    return list(qwink.batch(list(sources), question, model=nano, **given))


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_bytes().splitlines()]


def test_rows_are_the_answers_of_ask(nano: VLM, folder: Path) -> None:
    rows = {row.source: row for row in run(nano, folder)}
    assert sorted(rows) == [str(folder / f"{n}.png") for n in range(len(COLOURS))]
    for source, row in rows.items():
        alone = nano.ask(source, QUESTION, max_tokens=8, temperature=0.0)
        assert (row.answer, row.finish_reason) == (alone.text, alone.finish_reason)
        assert row.usage["completion_tokens"] == alone.usage.completion_tokens
        assert row.timings["encode_ms"] > 0 or row.timings["prefill_ms"] > 0
        assert (row.id, row.question, row.error) == (source, QUESTION, None)
        assert row.sha256 is not None


def test_bad_files_are_rows(nano: VLM, folder: Path) -> None:
    (folder / "broken.png").write_bytes(b"not a picture")
    rows = {Path(row.source).name: row for row in run(nano, folder)}
    assert len(rows) == len(COLOURS) + 1
    assert rows["broken.png"].error_type == "ImageError"
    assert "text" in (rows["broken.png"].error or "")
    assert all(row.answer for name, row in rows.items() if name != "broken.png")


def test_an_unforeseen_error_is_a_row(nano: VLM, folder: Path) -> None:
    def read() -> bytes:
        raise RuntimeError("no such device")

    rows = run(nano, Item.of(Part(read), "odd"), folder / "0.png")
    assert {row.source: row.error_type for row in rows} == {
        "odd": "RuntimeError",
        str(folder / "0.png"): None,
    }


def test_the_same_call_goes_on(nano: VLM, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    first = run(nano, folder, out=out, limit=2)
    assert len(first) == len(lines(out)) == 2
    second = run(nano, folder, out=out)
    assert len(second) == len(COLOURS) - 2
    assert run(nano, folder, out=out) == []
    draw(folder / "new.png", "brown")
    assert [Path(row.source).name for row in run(nano, folder, out=out)] == ["new.png"]
    assert set(Counter(line["id"] for line in lines(out)).values()) == {1}
    assert len(lines(out)) == len(COLOURS) + 1


def test_an_abandoned_call_goes_on(nano: VLM, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    rows = qwink.batch(folder, QUESTION, model=nano, out=out, max_tokens=8)
    first = next(rows)
    rows.close()
    assert lines(out)[0]["id"] == first.id
    before = {line["id"] for line in lines(out)}
    rest = list(qwink.batch(folder, QUESTION, model=nano, out=out, max_tokens=8))
    assert before | {row.id for row in rest} == {str(path) for path in folder.iterdir()}
    assert len(lines(out)) == len(COLOURS)
    nano.ask(folder / "0.png", QUESTION, max_tokens=2)  # the model is usable


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"question": "What shape?"}, "What shape?"),
        ({"max_tokens": 9}, "max_tokens"),
        ({"system": "Be brief."}, "system"),
        ({"skip_blank": True}, "skip_blank"),
    ],
)
def test_other_settings_are_not_mixed(
    nano: VLM, folder: Path, tmp_path: Path, changed: dict[str, Any], word: str
) -> None:
    out = tmp_path / "out.jsonl"
    run(nano, folder, out=out, limit=1)
    with pytest.raises(OptionError, match="other settings") as caught:
        run(nano, folder, out=out, **changed)
    assert word in str(caught.value)
    assert "--out" in str(caught.value)
    assert len(run(nano, folder, out=out)) == len(COLOURS) - 1  # the lock was given back


def test_errors_are_asked_again(nano: VLM, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    broken = folder / "broken.png"
    broken.write_bytes(b"not a picture")
    run(nano, folder, out=out)
    draw(broken, "pink")
    draw(folder / "new.png", "brown")
    assert [row.source for row in run(nano, folder, out=out, where="errors")] == [str(broken)]
    names = Counter(Path(line["id"]).name for line in lines(out))
    assert names["broken.png"] == 1
    assert names["new.png"] == 0
    assert all(line["error"] is None for line in lines(out))
    assert len(run(nano, folder, out=out, where="new+errors")) == 1


def test_a_retry_that_was_killed_loses_no_error(nano: VLM, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    for name in ("broken.png", "also.png"):
        (folder / name).write_bytes(name.encode())
    run(nano, folder, out=out)
    data = out.read_bytes()
    draw(folder / "broken.png", "pink")
    again = run(nano, folder / "broken.png", out=out, where="errors")
    # As a killed process leaves it: the new row stands behind the error that it replaces.
    out.write_bytes(data + again[0].line())
    found = run(nano, folder, out=out, where="errors")
    assert [Path(row.source).name for row in found] == ["also.png"]
    assert set(Counter(line["id"] for line in lines(out)).values()) == {1}
    assert len(lines(out)) == len(COLOURS) + 2


def test_identical_files_are_answered_once(nano: VLM, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "0.png", folder / "copy.png")
    out = tmp_path / "out.jsonl"
    rows = {Path(row.source).name: row for row in run(nano, folder, out=out)}
    pair = [rows["0.png"], rows["copy.png"]]
    copy = next(row for row in pair if row.same_as)
    original = next(row for row in pair if not row.same_as)
    assert copy.same_as == original.id
    assert copy.answer == original.answer
    assert copy.usage == {}
    shutil.copy(folder / "0.png", folder / "later.png")  # found by the next run too
    (later,) = run(nano, folder, out=out)
    assert (later.same_as, later.answer) == (original.id, original.answer)


def test_another_question_is_another_answer(nano: VLM, folder: Path) -> None:
    path = str(folder / "0.png")
    items = [{"image": path, "question": QUESTION}, {"image": path, "question": "What shape?"}]
    rows = run(nano, *items, question=None)
    assert {row.question for row in rows} == {QUESTION, "What shape?"}
    assert all(row.answer and row.same_as is None for row in rows)
    assert len({row.id for row in rows}) == 2


def test_followers_of_a_failed_item_are_tried_themselves(
    nano: VLM, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(folder / "0.png", folder / "copy.png")
    prepare, calls = nano.prepare, []

    def failing_once(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise ImageError("once only")
        return prepare(*arguments, **options)

    monkeypatch.setattr(nano, "prepare", failing_once)
    rows = run(nano, folder / "0.png", folder / "copy.png")
    assert sorted(row.error or "" for row in rows) == ["", "once only"]
    assert len([row for row in rows if row.answer]) == 1


def test_near_duplicates(nano: VLM, folder: Path, tmp_path: Path) -> None:
    draw(folder / "close.png", "#fe0101")  # nearly red
    rows = run(nano, folder / "0.png", folder / "close.png")
    assert [row.same_as for row in rows] == [None, None]
    out = tmp_path / "out.jsonl"
    rows = run(nano, folder / "0.png", folder / "close.png", near_duplicates=2, out=out)
    assert len([row for row in rows if row.same_as]) == 1
    assert all(row.dhash for row in rows)
    draw(folder / "closer.png", "#fd0202")
    (later,) = run(nano, folder / "closer.png", near_duplicates=2, out=out)
    assert later.same_as in {row.id for row in rows}


def test_blank_pages_are_skipped(nano: VLM, folder: Path) -> None:
    draw(folder / "blank.png", "white")
    rows = {Path(row.source).name: row for row in run(nano, folder, skip_blank=True)}
    assert rows["blank.png"].skipped == "blank"
    assert rows["blank.png"].answer is None
    assert rows["blank.png"].error is None
    assert [name for name, row in rows.items() if row.skipped] == ["blank.png"]
    assert all(row.skipped is None for row in run(nano, folder))


def test_pictures_in_memory(nano: VLM, folder: Path) -> None:
    data = (folder / "0.png").read_bytes()
    pixels = np.full((32, 32, 3), 200, np.uint8)
    with (folder / "1.png").open("rb") as file:
        rows = run(nano, data, pixels, file)
    assert sorted(row.id for row in rows) == ["0", "1", "2"]
    assert all(row.answer for row in rows)


def test_one_id_has_one_row(nano: VLM, folder: Path) -> None:
    told: list[Progress] = []
    rows = run(nano, folder, folder / "0.png", str(folder / "*.png"), progress=told.append)
    assert len(rows) == len(COLOURS)
    assert told[-1].repeated == len(COLOURS) + 1


def test_progress_adds_up(nano: VLM, folder: Path, tmp_path: Path) -> None:
    (folder / "broken.png").write_bytes(b"not a picture")
    shutil.copy(folder / "0.png", folder / "copy.png")
    out = tmp_path / "out.jsonl"
    told: list[Progress] = []
    run(nano, folder, out=out, progress=told.append)
    last = told[-1]
    assert (last.done, last.errors, last.copied, last.before) == (len(COLOURS) + 2, 1, 1, 0)
    run(nano, folder, out=out, progress=told.append)
    last = told[-1]
    assert (last.done, last.before, last.failed_before) == (0, len(COLOURS) + 2, 1)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"where": "old"}, "where"),
        ({"limit": 0}, "limit"),
        ({"concurrency": 0}, "concurrency"),
        ({"near_duplicates": 65}, "near_duplicates"),
        ({"out": "answers.xml"}, "parquet"),
        ({"max_token": 3}, "max_tokens"),
    ],
)
def test_bad_options(nano: VLM, folder: Path, options: dict[str, Any], word: str) -> None:
    with pytest.raises(OptionError, match=word):
        run(nano, folder, **options)


def test_concurrency_bounds_what_is_under_way(
    nano: VLM, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, active, most = nano.scheduler.submit, set[int](), [0]

    def counted(request: Any, listener: Any) -> Any:
        def listening(message: Any) -> None:
            if isinstance(message, Exception) or message.result is not None:
                active.discard(id(request))
            listener(message)

        active.add(id(request))
        most[0] = max(most[0], len(active))
        return submit(request, listening)

    monkeypatch.setattr(nano.scheduler, "submit", counted)
    run(nano, folder, concurrency=2)
    assert most[0] <= 2
