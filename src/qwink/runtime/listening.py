"""The events of a submitted request, for callers that wait in a thread or in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from queue import Empty, SimpleQueue

from qwink.errors import DeadlineExceeded
from qwink.runtime.request import Request
from qwink.runtime.scheduler import Scheduler
from qwink.types import Event

# The engine checks deadlines between its steps only, and a step may encode a large picture. A
# caller waits this much longer and then gives up.
_PATIENCE_S = 0.5
_TOO_LATE = "the answer took longer than the timeout; raise it, or use fewer or smaller pictures"


def listen(scheduler: Scheduler, request: Request) -> Iterator[Event]:
    """Submit the request; its events, the last with the result. Raises what ended it.

    The request is cancelled when the caller stops iterating.
    """
    _check_deadline(request)
    inbox: SimpleQueue[Event | Exception] = SimpleQueue()
    ticket = scheduler.submit(request, inbox.put)
    try:
        while True:
            try:
                message = inbox.get(timeout=_seconds_left(request))
            except Empty:
                raise DeadlineExceeded(_TOO_LATE) from None
            if isinstance(message, Exception):
                raise message
            yield with_data(message, request)
            if message.result is not None:
                return
    finally:
        ticket.cancel()  # frees the slot when the caller stops listening


async def listen_async(scheduler: Scheduler, request: Request) -> AsyncGenerator[Event, None]:
    """As `listen`, without blocking the event loop."""
    _check_deadline(request)
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[Event | Exception] = asyncio.Queue()

    def tell(message: Event | Exception) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(inbox.put_nowait, message)

    ticket = scheduler.submit(request, tell)
    try:
        while True:
            try:
                async with asyncio.timeout(_seconds_left(request)):
                    message = await inbox.get()
            except TimeoutError:
                raise DeadlineExceeded(_TOO_LATE) from None
            if isinstance(message, Exception):
                raise message
            yield with_data(message, request)
            if message.result is not None:
                return
    finally:
        ticket.cancel()


def _check_deadline(request: Request) -> None:
    if request.deadline is not None and time.monotonic() >= request.deadline:
        raise DeadlineExceeded(_TOO_LATE)


def _seconds_left(request: Request) -> float | None:
    if request.deadline is None:
        return None
    return max(0.0, request.deadline + _PATIENCE_S - time.monotonic())


def with_data(event: Event, request: Request) -> Event:
    """The event; if it is the last one and the answer has its shape, with the answer as data."""
    result, shape = event.result, request.shape
    if result is None or shape is None or not request.sequence.complete:
        return event
    if shape.read is None:
        return replace(event, result=replace(result, parsed=result.text))
    try:
        parsed = shape.read(result.text)
    except (ValueError, RecursionError) as error:  # pydantic's ValidationError is a ValueError
        reason = str(error).split("\n", 1)[0]
        warning = f"the answer has the schema but cannot be read as data: {reason}"
        return replace(event, result=replace(result, warnings=(*result.warnings, warning)))
    return replace(event, result=replace(result, parsed=parsed))
