"""Work on several at once, such that what is wrong with one of them stays with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from qwink.errors import QwinkError

logger = logging.getLogger(__name__)

R = TypeVar("R")


def together_or_alone(
    count: int, run: Callable[[int, int], Iterable[R]], what: str
) -> list[R | Exception]:
    """What `run(start, stop)` gives for 0 to `count`, or an exception in place of it.

    If running all together fails, each is run alone; `what` they are goes to the log.
    """
    try:
        return list(run(0, count))
    except Exception as error:
        _log(f"{count} {what} failed together" if count > 1 else f"one of the {what} failed", error)
        if count == 1:
            return [error]
    outcomes: list[R | Exception] = []
    for index in range(count):
        try:
            outcomes.extend(run(index, index + 1))
        except Exception as error:
            outcomes.append(error)
    return outcomes


def _log(message: str, error: Exception) -> None:
    """What is raised on purpose says it all in a line."""
    if isinstance(error, QwinkError):
        logger.warning("%s: %s", message, error)
    else:
        logger.exception(message)
