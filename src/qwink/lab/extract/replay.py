"""An answer that is known, generated as if the model had chosen it.

The engine computes everything in full: the picture, the prompt, each step's logits, the mask of the
answer's shape and the choice. Then the token of the known answer takes the place of the chosen one,
and is compared with drafts as the chosen one would be. So time and steps are those of a model that
gives this answer, whatever the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qwink.engine.sampler import Logprobs, Sampler
from qwink.errors import GenerationError
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.request import Request

Float = NDArray[np.float32]


class Replay:
    """Stands in for a sequence's sampler."""

    def __init__(self, sampler: Sampler, tokenizer: Tokenizer, answer: Sequence[int]) -> None:
        """`answer`: its tokens but for the one that ends it."""
        self._sampler, self._tokenizer = sampler, tokenizer
        self._text = tokenizer.decode(answer)
        self._known = [*answer, tokenizer.eos_ids[0]]

    def sample(
        self,
        logits: Float,
        generated: Sequence[int] = (),
        prompt_ids: ArrayLike = (),
        allowed: NDArray[np.bool_] | None = None,
    ) -> int:
        """As `Sampler.sample`, with the known token in place of the chosen one.

        Raises GenerationError if `allowed` leaves it out.
        """
        self._sampler.sample(logits, generated, prompt_ids, allowed)
        if list(generated) != self._known[: len(generated)]:
            self._spell_as(generated)
        token = self._known[len(generated)]
        if allowed is not None and not allowed[token]:
            raise GenerationError(f"the known answer has no such shape: {self._text[:200]}")
        return token

    def logprobs(self, logits: Float, token: int, num_top: int = 0) -> Logprobs:
        """As `Sampler.logprobs`."""
        return self._sampler.logprobs(logits, token, num_top)

    def _spell_as(self, generated: Sequence[int]) -> None:
        """Continue an answer whose forced tokens spell the same text in another way."""
        begun = self._tokenizer.decode(generated)
        if not self._text.startswith(begun):
            raise GenerationError(f"the answer should begin {self._text[:200]!r}, not {begun!r}")
        rest = self._tokenizer.encode_text(self._text[len(begun) :])
        self._known = [*generated, *rest, self._tokenizer.eos_ids[0]]


def replay(request: Request, tokenizer: Tokenizer, answer: Sequence[int]) -> None:
    """Let a prepared request give a known answer."""
    sequence: Any = request.sequence
    sequence._sampler = Replay(sequence._sampler, tokenizer, answer)
