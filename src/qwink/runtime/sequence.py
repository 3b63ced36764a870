"""One answer in the making: what was generated, what may be shown, whether it is finished."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwink.engine.sampler import RepetitionGuard, Sampler
from qwink.inputs.detokenizer import Detokenizer, StopStrings
from qwink.inputs.tokenizer import Tokenizer
from qwink.types import FinishReason, Prompt, SamplingParams


class Sequence:
    """Takes logits, gives text. The engine side reads `last_id`, `num_cached` and `position`."""

    def __init__(
        self,
        prompt: Prompt,
        params: SamplingParams,
        tokenizer: Tokenizer,
        forbidden: NDArray[np.int64],
        vocab_size: int,
    ) -> None:
        self.prompt = prompt
        self.generated: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._params = params
        self._eos_ids = frozenset(tokenizer.eos_ids)
        self._sampler = Sampler(params, forbidden, vocab_size)
        self._guard = RepetitionGuard()
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(params.stop)

    @property
    def last_id(self) -> int:
        """The token to run next."""
        return self.generated[-1]

    @property
    def num_cached(self) -> int:
        """Tokens whose keys and values are in the cache: all but the last one generated."""
        return len(self.prompt) + len(self.generated) - 1

    @property
    def position(self) -> int:
        """M-RoPE position of the last token generated."""
        return self.prompt.next_position + len(self.generated) - 1

    def accept(self, logits: NDArray[np.float32]) -> str:
        """Choose a token from logits [vocab]; returns the text that has become safe to show.

        Raises GenerationError when the logits are not numbers.
        """
        token = self._sampler.sample(logits, self.generated, self.prompt.ids)
        self.generated.append(token)
        if token in self._eos_ids:
            return self._finish("stop")
        text = self._stops.add(self._detokenizer.add(token))
        if self._stops.stopped:
            self.finish_reason = "stop"
        elif self._guard.add(token):
            text += self._finish("repetition")
        elif len(self.generated) >= self._params.max_tokens:
            text += self._finish("length")
        return text

    def _finish(self, reason: FinishReason) -> str:
        self.finish_reason = reason
        rest = self._stops.add(self._detokenizer.finish())
        return rest + self._stops.finish()
