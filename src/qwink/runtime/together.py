"""Run a batch; if it raises, retry the items one by one."""

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
    """The results of `run(start, stop)` for the items 0 to `count`.

    If the batch raises, each item is run alone, and an item that raises again has its exception
    as its result. `what` names the items in the log.
    """
    try:
        return list(run(0, count))
    except Exception as error:
        log_failure(count, what, error)
        if count == 1:
            return [error]
    outcomes: list[R | Exception] = []
    for index in range(count):
        try:
            outcomes.extend(run(index, index + 1))
        except Exception as error:
            outcomes.append(error)
    return outcomes


def log_failure(count: int, what: str, error: Exception) -> None:
    """Log that `count` items failed: a QwinkError as one line, any other with its traceback."""
    message = f"{count} {what} failed together" if count > 1 else f"one of the {what} failed"
    if isinstance(error, QwinkError):
        logger.warning("%s: %s", message, error)
    else:
        logger.error(message, exc_info=error)
