"""One answer in the making: what was generated, what may be shown, whether it is finished."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwink.engine.sampler import RepetitionGuard, Sampler
from qwink.inputs.detokenizer import Detokenizer, StopStrings
from qwink.inputs.tokenizer import Tokenizer
from qwink.types import FinishReason, Prompt, SamplingParams, TokenLogprob


class Sequence:
    """Takes logits, gives text. The engine side reads `last_id`, `num_cached` and `position`."""

    def __init__(
        self,
        prompt: Prompt,
        params: SamplingParams,
        tokenizer: Tokenizer,
        forbidden: NDArray[np.int64],
        vocab_size: int,
        num_logprobs: int | None = None,
    ) -> None:
        """`num_logprobs`: how many likeliest tokens to report beside each; None reports nothing."""
        self.prompt = prompt
        self.generated: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._params = params
        self._num_logprobs = num_logprobs
        self._logprobs: list[TokenLogprob] = []
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
    def cached_ids(self) -> NDArray[np.int64]:
        """The tokens that are in the cache: [num_cached]."""
        return np.concatenate([self.prompt.ids, np.asarray(self.generated[:-1], np.int64)])

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
        if self._num_logprobs is not None:
            found = self._sampler.logprobs(logits, token, self._num_logprobs)
            self._logprobs.append(TokenLogprob(token, found.chosen, found.top))
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

    def take_logprobs(self) -> tuple[TokenLogprob, ...]:
        """Those of the tokens since the last call."""
        taken, self._logprobs = tuple(self._logprobs), []
        return taken

    def _finish(self, reason: FinishReason) -> str:
        self.finish_reason = reason
        rest = self._stops.add(self._detokenizer.finish())
        return rest + self._stops.finish()
