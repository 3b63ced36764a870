"""A question on its way through the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from qwink.runtime.preparation import PreparedImage
from qwink.runtime.sequence import Sequence
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import EncodedImage, Event

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
