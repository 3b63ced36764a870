"""One answer in the making: what was generated, what may be shown, whether it is finished."""

from __future__ import annotations

from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from qwink.engine.sampler import RepetitionGuard, Sampler
from qwink.inputs.detokenizer import Detokenizer, StopStrings
from qwink.inputs.tokenizer import Tokenizer
from qwink.types import FinishReason, Prompt, SamplingParams, TokenLogprob

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may come next, and the chance of each to be right if those before it are."""

    ids: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()


class Drafter(Protocol):
    """Guesses the tokens that come next. A wrong guess costs time and changes nothing."""

    def propose(self, generated: Series[int], most: int) -> Draft:
        """Up to `most` tokens that may follow the answer so far."""

    def finish(self, generated: Series[int]) -> None:
        """The answer is whole."""


class Sequence:
    """Takes logits, gives text. The engine side reads `next_ids`, `num_cached` and `position`."""

    def __init__(
        self,
        prompt: Prompt,
        params: SamplingParams,
        tokenizer: Tokenizer,
        forbidden: NDArray[np.int64],
        vocab_size: int,
        num_logprobs: int | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        """`num_logprobs`: how many likeliest tokens to report beside each; None reports nothing."""
        self.prompt = prompt
        self.generated: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._params = params
        self._num_logprobs = num_logprobs
        self._logprobs: list[tuple[int, TokenLogprob]] = []  # and where each token's text begins
        self._num_decoded = self._num_shown = 0  # characters
        self.num_accepted = self.num_rejected = 0  # drafts that were run
        self._drafter = drafter
        self._draft, self._drafted_at = Draft(), -1  # and after how many tokens it was made
        self._drafts: tuple[int, ...] = ()  # what the next logits beyond the first belong to
        self._eos_ids = frozenset(tokenizer.eos_ids)
        self._sampler = Sampler(params, forbidden, vocab_size)
        self._guard = RepetitionGuard()
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(params.stop)

    @property
    def num_cached(self) -> int:
        """Tokens whose keys and values are in the cache: all but the last one generated."""
        return len(self.prompt) + len(self.generated) - 1

    @property
    def position(self) -> int:
        """M-RoPE position of the last token generated."""
        return self.prompt.next_position + len(self.generated) - 1

    @property
    def may_draft(self) -> bool:
        """Whether there are drafts at all."""
        return self._drafter is not None

    def draft(self, most: int) -> Draft:
        """Guesses of the tokens to come: up to `most`, as many as the answer may still have."""
        most = min(most, self._params.max_tokens - len(self.generated) - 1)
        if self._drafter is None or most <= 0:
            return Draft()
        self._draft = self._drafter.propose(self.generated, most)
        self._drafted_at = len(self.generated)
        return self._draft

    def next_ids(self, num_drafts: int = 0) -> tuple[int, ...]:
        """The tokens to run next: the last one generated, then up to `num_drafts` guesses."""
        fresh = self._drafted_at == len(self.generated)
        if num_drafts and not (fresh and len(self._draft.ids) >= num_drafts):
            self.draft(num_drafts)
            fresh = self._drafted_at == len(self.generated)
        self._drafts = self._draft.ids[:num_drafts] if fresh else ()
        return (self.generated[-1], *self._drafts)

    def accept(self, logits: Float) -> str:
        """Choose tokens from the logits [n, vocab] behind the n tokens of `next_ids`.

        Each is chosen as if it came alone; the first that differs from its draft is the last.
        Returns the text that has become safe to show. Raises GenerationError when logits are not
        numbers.
        """
        text, num_right = "", 0
        for row, draft in zip(logits, (*self._drafts, None), strict=False):
            text += self._accept(row)
            if self.generated[-1] != draft:
                break
            num_right += 1
            if self.finish_reason is not None:
                break
        self.num_accepted += num_right
        self.num_rejected += len(self._drafts) - num_right
        self._drafts = ()
        self._num_shown += len(text)
        if self.finish_reason is not None and self._drafter is not None:
            self._drafter.finish(self.generated)
        return text

    def _accept(self, logits: Float) -> str:
        token = self._sampler.sample(logits, self.generated, self.prompt.ids)
        self.generated.append(token)
        if token in self._eos_ids:
            return self._finish("stop")
        if self._num_logprobs is not None:
            found = self._sampler.logprobs(logits, token, self._num_logprobs)
            logprob = TokenLogprob(token, found.chosen, found.top)
            self._logprobs.append((self._num_decoded, logprob))
        decoded = self._detokenizer.add(token)
        self._num_decoded += len(decoded)
        text = self._stops.add(decoded)
        if self._stops.stopped:
            self.finish_reason = "stop"
        elif self._guard.add(token):
            text += self._finish("repetition")
        elif len(self.generated) >= self._params.max_tokens:
            text += self._finish("length")
        return text

    def take_logprobs(self) -> tuple[TokenLogprob, ...]:
        """Those of the tokens since the last call whose text is shown.

        Tokens of a stop string, which the text leaves out, are left out too.
        """
        shown = [one for begin, one in self._logprobs if begin < self._num_shown]
        self._logprobs = [] if self.finish_reason else self._logprobs[len(shown) :]
        return tuple(shown)

    def _finish(self, reason: FinishReason) -> str:
        self.finish_reason = reason
        rest = self._stops.add(self._detokenizer.finish())
        return rest + self._stops.finish()
