"""Tests of what limited a run."""

from __future__ import annotations

from qwink.batches.occupancy import Limit, Occupancy


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(gap: float, busy: float, reading: float, decoding: float) -> Limit | None:
    """Ten requests, one after another: the engine has nothing to do for `gap`, works for `busy`."""
    clock = Clock()
    occupancy = Occupancy(1, clock)
    for _ in range(10):
        occupancy.enter()
        occupancy.spent(reading, decoding)
        clock.now += busy
        occupancy.leave()
        clock.now += gap
    return occupancy.limit()


def test_the_engine_is_the_limit_while_it_is_full() -> None:
    limit = run(0.1, 0.9, 0.0, 0.1)
    assert limit is not None
    assert limit.what == "engine"
    assert round(limit.starved, 2) == 0.1
    assert "the engine" in str(limit)
    assert "10%" in str(limit)


def test_otherwise_the_slower_of_decoding_and_disk() -> None:
    for reading, decoding, what in ((0.1, 0.7, "decoding"), (0.7, 0.1, "disk")):
        limit = run(0.9, 0.1, reading, decoding)
        assert limit is not None
        assert limit.what == what
        assert what in str(limit)


def test_a_short_run_says_nothing() -> None:
    assert run(0.01, 0.01, 0.0, 0.0) is None


def test_the_end_of_a_run_does_not_count() -> None:
    clock = Clock()
    occupancy = Occupancy(2, clock)
    for _ in range(2):
        occupancy.enter()
        clock.now += 1
    clock.now += 100  # the last two answers are under way; there is nothing left to decode
    occupancy.leave()
    occupancy.leave()
    limit = occupancy.limit()
    assert limit is not None
    assert limit.engine_s == 1
