"""A question and its way through the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from qwink.runtime.boxes import NOTHING_SHOWN, Shown, find_boxes
from qwink.runtime.preparation import PreparedImage
from qwink.runtime.sequence import Sequence
from qwink.runtime.slots import Lease
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import EncodedImage, Event, Prompt, Result, Shape, Task, Usage

CUT_BY_LIMIT = "max_tokens allows more"

# Called from the engine thread with each event. The last call has the event that carries the
# result, or an exception.
Listener = Callable[[Event | Exception], None]


@dataclass(frozen=True, slots=True, eq=False)
class ReadStrip:
    """The request for a strip of a page.

    `overlaps`: its text begins with lines of the strip before. `joint` stands between the texts.
    """

    request: Request
    overlaps: bool = False
    joint: str = "\n"


@dataclass(slots=True, eq=False)
class Request:
    """A question ready to be run. `deadline` is on the clock of `time.monotonic`.

    A `background` request runs when no other one waits, and leaves a slot to them.
    """

    sequence: Sequence
    images: tuple[PreparedImage, ...]
    max_tokens: int
    model: str
    watch: Stopwatch
    warnings: tuple[str, ...] = ()
    deadline: float | None = None
    # What to say if the answer reaches `max_tokens`; None: no warning about its end.
    cut_reason: str | None = CUT_BY_LIMIT
    task: Task | None = None  # as the question and the pictures resolved it
    shown: Shown = NOTHING_SHOWN
    shape: Shape | None = None  # what the answer was asked to have
    background: bool = False
    # Makes the sequence of another answer to the same question; it is given the answer's number.
    another: Callable[[int], Sequence] | None = None
    # What runs instead of this request, if its page is read in strips.
    strips: tuple[ReadStrip, ...] = ()
    page: Hashable = None  # requests about strips of one page have this in common

    def answers(self, count: int) -> list[Request]:
        """This request, and others like it: `count` in all.

        The scheduler computes their prompt once. With a seed, answer i draws by `seed` + i.
        """
        assert count == 1 or self.another is not None
        if self.strips:
            return self._answers_of_strips(count)
        others = [
            replace(self, sequence=self.another(number), watch=self.watch.again())
            for number in range(1, count)
            if self.another is not None
        ]
        return [self, *others]

    def _answers_of_strips(self, count: int) -> list[Request]:
        by_strip = [strip.request.answers(count) for strip in self.strips]
        return [
            replace(
                self,
                watch=self.watch if number == 0 else self.watch.again(),
                strips=tuple(
                    replace(strip, request=requests[number])
                    for strip, requests in zip(self.strips, by_strip, strict=True)
                ),
            )
            for number in range(count)
        ]


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that the scheduler has taken. `cancel` may be called from any thread."""

    request: Request
    listener: Listener
    number: int
    arrived: int = 0  # how much work of prompts had been done before, in tokens
    estimate: int | None = None  # work up to the first token while it waits, in tokens
    cancelled: bool = False
    encoded: dict[str, EncodedImage] = field(default_factory=dict)
    lease: Lease | None = None  # its slot of the KV cache, once there is room
    num_prefilled: int = 0
    num_counted: int = 0  # generated tokens that are in the scheduler's count
    announced: bool = False  # its place in the queue has been told
    pieces: list[str] = field(default_factory=list)

    def cancel(self) -> None:
        """The answer is not wanted any more; its slot is free after the next step."""
        self.cancelled = True

    @property
    def sequence(self) -> Sequence:
        return self.request.sequence

    @property
    def prompt(self) -> Prompt:
        return self.request.sequence.prompt

    @property
    def watch(self) -> Stopwatch:
        return self.request.watch

    @property
    def slot(self) -> int:
        """Of the KV cache. The ticket must have a lease."""
        assert self.lease is not None
        return self.lease.slot

    @property
    def num_tokens(self) -> int:
        """Most tokens that prompt and answer can take."""
        return len(self.prompt) + self.request.max_tokens

    def result(self) -> Result:
        """The whole answer, once its sequence has finished."""
        sequence = self.sequence
        assert sequence.finish_reason is not None
        usage = Usage(
            prompt_tokens=len(sequence.prompt),
            completion_tokens=len(sequence.generated),
            image_tokens=sum(span.length for span in sequence.prompt.images),
            cached_tokens=self.lease.num_reused if self.lease else 0,
            accepted_prediction_tokens=sequence.num_accepted,
            rejected_prediction_tokens=sequence.num_rejected,
        )
        text = "".join(self.pieces)
        found = find_boxes(text, self.request.shown)
        return Result(
            text,
            sequence.finish_reason,
            usage,
            self.watch.timings(),
            self.request.model,
            self.request.warnings + self._cut_warning() + self._shape_warning() + found.warnings,
            task=self.request.task,
            boxes=found.boxes,
            points=found.points,
            choices=sequence.choices,
        )

    def _shape_warning(self) -> tuple[str, ...]:
        if self.sequence.complete:
            return ()
        return ("the answer ended early and does not have the shape that was asked for",)

    def _cut_warning(self) -> tuple[str, ...]:
        """What cut the answer off, if anything did."""
        tokens, reason = len(self.sequence.generated), self.sequence.finish_reason
        if self.request.cut_reason is None:
            return ()
        if reason == "repetition":
            return (f"stopped after {tokens} tokens (repetition): it repeated the same text",)
        if reason == "length":
            return (f"stopped after {tokens} tokens (length): {self.request.cut_reason}",)
        return ()


# A ticket with its next text, or with the exception that ends it.
Outcome = tuple[Ticket, str | Exception]


def accept(ticket: Ticket, rows: NDArray[np.float32] | Exception) -> str | Exception:
    """The text that logits [num tokens run, vocab] lead to, or the exception that ends it."""
    if isinstance(rows, Exception):
        return rows
    try:
        return ticket.sequence.accept(rows)
    except Exception as error:
        return error
