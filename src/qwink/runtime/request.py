"""A question on its way through the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from qwink.runtime.preparation import PreparedImage
from qwink.runtime.sequence import Sequence
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import EncodedImage, Event, Result, Usage

# Called from the engine thread with each event and, in the end, with the one that carries the
# result or with an exception.
Listener = Callable[[Event | Exception], None]


@dataclass(slots=True, eq=False)
class Request:
    """A question ready to be run. `deadline` is on the clock of `time.monotonic`."""

    sequence: Sequence
    images: tuple[PreparedImage, ...]
    max_tokens: int
    model: str
    watch: Stopwatch
    warnings: tuple[str, ...] = ()
    deadline: float | None = None


@dataclass(slots=True, eq=False)
class Ticket:
    """A request in the scheduler's hands. `cancel` may be called from any thread."""

    request: Request
    listener: Listener
    number: int
    cancelled: bool = False
    encoded: dict[str, EncodedImage] = field(default_factory=dict)
    num_prefilled: int = 0
    num_reused: int = 0
    admitted: bool = False
    pieces: list[str] = field(default_factory=list)

    def cancel(self) -> None:
        """Nobody waits for the answer any more; its slot is free at the next step."""
        self.cancelled = True

    @property
    def num_tokens(self) -> int:
        """Most tokens that prompt and answer can take."""
        return len(self.request.sequence.prompt) + self.request.max_tokens

    def result(self) -> Result:
        """The whole answer, once its sequence has finished."""
        request, sequence = self.request, self.request.sequence
        assert sequence.finish_reason is not None
        usage = Usage(
            prompt_tokens=len(sequence.prompt),
            completion_tokens=len(sequence.generated),
            image_tokens=sum(span.length for span in sequence.prompt.images),
            cached_tokens=self.num_reused,
        )
        return Result(
            "".join(self.pieces),
            sequence.finish_reason,
            usage,
            request.watch.timings(),
            request.model,
            request.warnings,
        )


# A ticket with its next text or with what went wrong.
Outcome = tuple[Ticket, str | Exception]


def accept(ticket: Ticket, row: NDArray[np.float32] | Exception) -> str | Exception:
    """The text that a row of logits leads to, or what is wrong with it."""
    if isinstance(row, Exception):
        return row
    try:
        return ticket.request.sequence.accept(row)
    except Exception as error:
        return error
