"""Traces of requests: generated, written, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwink.errors import OptionError
from qwink.lab.plan.trace import Mix, generate, read_trace, write_trace


def test_generated_requests_are_as_asked() -> None:
    arrivals = generate(Mix(rate=4, count=4000, second=0.25, seed=1))
    assert arrivals == generate(Mix(rate=4, count=4000, second=0.25, seed=1))
    assert arrivals[-1].at_s == pytest.approx(1000, rel=0.1)
    again = [arrival for arrival in arrivals if arrival.turn > 1]
    assert len(again) / len(arrivals) == pytest.approx(0.25, abs=0.03)
    by_turn = {(arrival.conversation, arrival.turn): arrival for arrival in arrivals}
    for arrival in again:
        before = by_turn[arrival.conversation, arrival.turn - 1]
        assert before.at_s < arrival.at_s
        assert before.picture == arrival.picture
        assert before.prompt_tokens + before.answer_tokens < arrival.prompt_tokens


def test_a_file_gives_the_same_requests(tmp_path: Path) -> None:
    arrivals = generate(Mix(rate=1, count=20))
    path = tmp_path / "trace.jsonl"
    write_trace(path, reversed(arrivals))
    assert read_trace(path) == arrivals


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        '{"at_s": 1, "prompt_tokens": 10}',
        '{"at_s": -1, "prompt_tokens": 10, "answer_tokens": 1}',
        '{"at_s": 1, "prompt_tokens": 10, "answer_tokens": 0}',
        '{"at_s": 1, "prompt_tokens": 10, "answer_tokens": 1, "visual_tokens": 11}',
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"at_s": 0, "prompt_tokens": 10, "answer_tokens": 1}\n' + line + "\n")
    with pytest.raises(OptionError, match=r"line 2"):
        read_trace(path)


def test_an_impossible_mix_is_refused() -> None:
    for wrong in ({"rate": 0.0}, {"rate": 1.0, "second": 1.5}, {"rate": 1.0, "count": 0}):
        with pytest.raises(OptionError):
            Mix(**wrong)  # type: ignore[arg-type]
