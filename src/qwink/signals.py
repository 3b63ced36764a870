"""What SIGTERM and SIGINT do to `qwink serve`, from its first moment to its last: exit code 0."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP = (signal.SIGTERM, signal.SIGINT)


def leave_at_once() -> None:
    """End the process on a signal: before there is anything to finish, or when all is finished."""
    call(lambda: os._exit(0))


def call(listener: Callable[[], None]) -> None:
    """Call `listener` in the main thread on each signal. Must be called in the main thread.

    The handlers of asyncio are removed with its loop, after which a signal would kill the process.
    """
    for number in STOP:
        signal.signal(number, lambda *_: listener())


@contextmanager
def withheld() -> Iterator[None]:
    """Signals wait until the end of the block. Processes that are started in it never get them.

    A terminal, `timeout` and systemd signal all processes of a group at once.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """Ignore signals. For the interpreter's end: Python removes all other handlers there."""
    for number in STOP:
        signal.signal(number, signal.SIG_IGN)
