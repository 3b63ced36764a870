"""All at once or, if that fails, one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from qwink.errors import OutOfMemory
from qwink.runtime.together import together_or_alone


def failing_on(bad: int, error: Exception, calls: list[tuple[int, int]]) -> Callable[..., range]:
    def run(start: int, stop: int) -> range:
        calls.append((start, stop))
        if start <= bad < stop:
            raise error
        return range(start, stop)

    return run


def test_together() -> None:
    calls: list[tuple[int, int]] = []
    assert together_or_alone(3, failing_on(-1, ValueError(), calls), "things") == [0, 1, 2]
    assert calls == [(0, 3)]


def test_one_by_one() -> None:
    calls: list[tuple[int, int]] = []
    error = ValueError("bad")
    assert together_or_alone(3, failing_on(1, error, calls), "things") == [0, error, 2]
    assert calls == [(0, 3), (0, 1), (1, 2), (2, 3)]


def test_one_is_not_tried_twice() -> None:
    calls: list[tuple[int, int]] = []
    error = ValueError("bad")
    assert together_or_alone(1, failing_on(0, error, calls), "things") == [error]
    assert calls == [(0, 1)]


def test_what_is_raised_on_purpose_is_logged_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        together_or_alone(2, failing_on(0, OutOfMemory("no room"), []), "images")
        together_or_alone(2, failing_on(0, ValueError("bad"), []), "images")
    first, second = caplog.records
    assert first.getMessage() == "2 images failed together: no room"
    assert first.exc_info is None
    assert second.exc_info is not None
