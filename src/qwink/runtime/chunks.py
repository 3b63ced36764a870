"""Where prompts are cut into chunks.

An engine whose results do not depend on the cut (`traits.invariant`) may begin anywhere. Any other
gives the same bits only for the same cuts: then the prompt alone decides where they are, and a
known start is used up to the last of them. One lies behind the system turn and one behind each
picture, so that the next question has little to compute.
"""

from __future__ import annotations

from bisect import bisect_right

from qwink.types import Prompt


class Chunks:
    """`size` tokens at most each; `anywhere`: whether a prompt may be cut at any token."""

    def __init__(self, size: int, *, anywhere: bool) -> None:
        self._size, self._anywhere = size, anywhere

    def stop(self, prompt: Prompt, start: int) -> int:
        """Where the chunk that begins at `start` ends."""
        if self._anywhere:
            return min(start + self._size, len(prompt))
        ends = self._ends(prompt)
        return ends[bisect_right(ends, start)]

    def usable(self, prompt: Prompt, num_known: int) -> int:
        """How many of a prompt's first `num_known` tokens can be used again."""
        if self._anywhere or num_known == len(prompt):
            return num_known
        ends = [0, *self._ends(prompt)]
        return ends[bisect_right(ends, num_known) - 1]

    def _ends(self, prompt: Prompt) -> list[int]:
        ends: list[int] = []
        start = 0
        cuts = {span.start + span.length for span in prompt.images} | {prompt.num_system}
        for stop in sorted((cuts | {len(prompt)}) - {0}):
            ends += [*range(start + self._size, stop, self._size), stop]
            start = stop
        return ends
