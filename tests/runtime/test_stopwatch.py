"""Where time goes, by a clock that moves when told to."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from qwink.runtime.stopwatch import Stopwatch
from qwink.types import STAGES

Advance = Callable[[float], None]


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Advance:
    """`advance(seconds)` moves the clock."""
    now = 1000.0

    def move(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    return move


def test_nothing_happened(advance: Advance) -> None:
    timings = Stopwatch().timings()
    assert timings.total_ms == timings.first_token_ms == timings.queue_ms == 0
    assert timings.origins == dict.fromkeys(STAGES, "absent")
    assert timings.notes == ()


def test_stages_add_up(advance: Advance) -> None:
    watch = Stopwatch()
    watch.queued()
    advance(0.5)
    watch.dequeued()
    watch.dequeued()  # counts once
    for seconds in (1.0, 2.0):
        with watch.stage("prefill"):
            advance(seconds)
    advance(0.25)  # in no stage
    watch.first_token()
    watch.add("generate", 4.0)
    advance(4.0)
    watch.first_token()  # only the first counts
    timings = watch.timings()
    assert timings.queue_ms == pytest.approx(500)
    assert timings.prefill_ms == pytest.approx(3000)
    assert timings.generate_ms == pytest.approx(4000)
    assert timings.first_token_ms == pytest.approx(3750)
    assert timings.total_ms == pytest.approx(7750)
    assert timings.encode_ms == 0


def test_time_before_an_error_counts(advance: Advance) -> None:
    watch = Stopwatch()

    def fail() -> None:
        with watch.stage("decode"):
            advance(1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert watch.timings().decode_ms == pytest.approx(1000)
    assert watch.timings().origins["decode"] == "computed"


def test_computed_outweighs_reused(advance: Advance) -> None:
    watch = Stopwatch()
    watch.reused("encode")
    assert watch.timings().origins["encode"] == "reused"
    with watch.stage("encode"):
        pass
    watch.reused("encode")
    assert watch.timings().origins["encode"] == "computed"


def test_notes_are_told_once(advance: Advance) -> None:
    watch = Stopwatch()
    for note in ("a", "b", "a"):
        watch.note(note)
    assert watch.timings().notes == ("a", "b")


def test_timings_are_a_snapshot(advance: Advance) -> None:
    watch = Stopwatch()
    before = watch.timings()
    watch.reused("encode")
    watch.note("later")
    assert before.origins["encode"] == "absent"
    assert before.notes == ()
