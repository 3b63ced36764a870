"""The breaker opens after failures, probes, and closes again."""

from __future__ import annotations

from qwink.cache.breaker import FIRST_PAUSE_S, LONGEST_PAUSE_S, NUM_FAILURES, Breaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock, told: list[tuple[bool, str]] | None = None) -> Breaker:
    breaker = Breaker(lambda state, why: (told or []).append((state, why)), clock)
    for _ in range(NUM_FAILURES):
        assert breaker.allows()
        breaker.failed("refused")
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = Breaker()
    for _ in range(3 * NUM_FAILURES):
        breaker.failed("refused")
        breaker.failed("refused")
        breaker.succeeded()
    assert breaker.allows()
    breaker = opened(Clock())
    assert breaker.state == "open"
    assert not breaker.allows()


def test_one_probe_passes_after_a_pause_and_closes_it() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += FIRST_PAUSE_S
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    breaker.succeeded()
    assert [breaker.allows() for _ in range(3)] == [True, True, True]
    breaker.failed("refused")
    assert breaker.state == "closed"


def test_pauses_grow_to_a_limit() -> None:
    clock = Clock()
    breaker = opened(clock)
    pause = FIRST_PAUSE_S
    for _ in range(10):
        clock.now += pause - 0.001
        assert not breaker.allows()
        clock.now += 0.001
        assert breaker.allows()
        breaker.failed("refused")
        pause = min(2 * pause, LONGEST_PAUSE_S)
    assert pause == LONGEST_PAUSE_S


def test_calls_from_before_it_opened_change_nothing() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += FIRST_PAUSE_S - 1
    breaker.failed("refused")  # would begin the pause anew
    clock.now += 1
    assert breaker.allows()


def test_a_probe_that_was_not_made_leaves_the_next_call_to_probe() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += FIRST_PAUSE_S
    assert breaker.allows()
    breaker.abandoned()
    assert [breaker.allows(), breaker.allows()] == [True, False]
    breaker = Breaker()
    breaker.abandoned()
    assert breaker.state == "closed"


def test_a_probe_whose_end_is_not_reported_is_followed_by_another() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += FIRST_PAUSE_S
    assert [breaker.allows(), breaker.allows()] == [True, False]
    clock.now += FIRST_PAUSE_S
    assert [breaker.allows(), breaker.allows()] == [True, False]


def test_each_change_is_told_once() -> None:
    clock, told = Clock(), [(False, "start")]
    breaker = opened(clock, told)
    for _ in range(4):
        clock.now += LONGEST_PAUSE_S
        assert breaker.allows()
        breaker.failed("still refused")
    clock.now += LONGEST_PAUSE_S
    assert breaker.allows()
    breaker.succeeded()
    breaker.succeeded()
    assert told[1:] == [(True, "refused"), (False, "")]
