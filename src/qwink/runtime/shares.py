"""What runs next on the engine: prompts or running answers.

While there are answers, work on prompts (parts of the encoder, chunks of prompts) gets at most half
of the time. After a step of the answers, prompts may run for as long as that step took. If they run
longer, as much time of steps follows before prompts run again. A stream therefore waits between two
steps for one piece of work, or for as long as its last step took, whichever is longer. Without
answers prompts use all the time, and without prompts answers do. Unused time is not kept for later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Clock = Callable[[], float]  # seconds


class Shares:
    """Counts the time of both sides."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._ahead = 0.0  # seconds that prompts are ahead of the answers
        self._answering = False

    def prompts_turn(self, *, answering: bool) -> bool:
        """Whether prompts run next; `answering`: there are answers under way."""
        if not answering:
            self._ahead = 0.0
        self._answering = answering
        return not answering or self._ahead < 0

    @contextmanager
    def prompts(self) -> Iterator[None]:
        """Count the time within as that of prompts."""
        start = self._clock()
        try:
            yield
        finally:
            if self._answering:
                self._ahead += self._clock() - start

    @contextmanager
    def answers(self) -> Iterator[None]:
        """Count the time within as that of answers."""
        start = self._clock()
        try:
            yield
        finally:
            spent = self._clock() - start
            self._ahead = max(self._ahead - spent, -spent)
