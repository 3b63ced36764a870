"""Users of two checkouts: the figures, and one short run of the whole command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qwink.errors import QwinkError
from qwink.lab.load.client import Reply
from qwink.lab.users import Turn, figures, main

SOURCE = Path(__file__).parents[2] / "src"


def test_turns_are_pooled() -> None:
    one = Reply(None, 100.0, 40.0, 20.0, (10.0, 30.0), 3)
    two = Reply(None, 300.0, 80.0, 110.0, (110.0,), 2)
    found = figures("src", [Turn((one, Reply("timeout")), 0.5), Turn((two,), 1.5)])
    assert (found.answers, found.answers_per_minute) == (2, 1.0)
    assert (found.gap_ms.median, found.gap_ms.count) == (30.0, 3)
    assert (found.first_token_ms.median, found.first_token_ms.max) == (60.0, 80.0)
    assert found.errors == {"timeout": 1}
    assert found.tokens_per_s == round(5 / 120, 2)


def test_no_answer_is_an_error() -> None:
    with pytest.raises(QwinkError, match=r"no answer; .*HTTP 400"):
        figures("src", [Turn((Reply("HTTP 400"),), 1.0)])


@pytest.mark.slow
def test_two_checkouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "users.json"
    sides = [f"{SOURCE}=nano", f"{SOURCE}=nano"]
    options = ["--users", "3", "--minutes", "0.02", "--sides", "64", "96", "--threads", "1"]
    main([*sides, *options, "--out", str(out)])
    document = json.loads(out.read_text("utf-8"))
    assert document["kind"] == "users"
    assert [one["source"] for one in document["checkouts"]] == [str(SOURCE)] * 2
    assert all(one["answers"] >= 3 and not one["errors"] for one in document["checkouts"])
    assert capsys.readouterr().out.count("answers a minute") == 2


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nano"])
    assert "SRC=ARTIFACT" in capsys.readouterr().err
