"""One answer in the making: what was generated, what may be shown, whether it is finished."""

from __future__ import annotations

from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from qwink.engine.repetition import CountingGuard, RepetitionGuard
from qwink.engine.sampler import Sampler
from qwink.inputs.detokenizer import Detokenizer, StopStrings
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.constraint import Constraint
from qwink.types import Choice, FinishReason, Prompt, SamplingParams, TokenLogprob

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may come next, and the chance of each to be right if those before it are.

    The first `num_certain` are right, whatever the model computes.
    """

    ids: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()
    num_certain: int = 0


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
        constraint: Constraint | None = None,
    ) -> None:
        """`num_logprobs`: how many likeliest tokens to report beside each; None reports nothing.

        `constraint` says what the answer may say; None: anything.
        """
        self.prompt = prompt
        self.generated: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._params = params
        self._num_logprobs = num_logprobs
        self._logprobs: list[tuple[int, TokenLogprob]] = []  # and where each token's text begins
        self._num_decoded = self._num_shown = 0  # characters
        self.num_accepted = self.num_rejected = 0  # drafts that were run
        self._drafter = drafter
        self._constraint = constraint
        self._draft, self._drafted_at = Draft(), -1  # and after how many tokens it was made
        self._forced: tuple[int, ...] = ()  # tokens that run next, and that come whatever happens
        self._drafts: tuple[int, ...] = ()  # guesses that run behind them
        self._eos_ids = frozenset(tokenizer.eos_ids)
        self._sampler = Sampler(params, forbidden, vocab_size)
        self._repetition, self._counting = RepetitionGuard(), CountingGuard()
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
    def complete(self) -> bool:
        """Whether the answer so far has its shape; always, if none was asked for."""
        return self._constraint is None or self._constraint.complete

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The probabilities of the choices, once they are known, if it was asked to choose."""
        return ()

    @property
    def may_draft(self) -> bool:
        """Whether there are drafts at all."""
        return self._drafter is not None or self._constraint is not None

    def draft(self, most: int, guesses: int | None = None) -> Draft:
        """Up to `most` tokens to come: those that the answer's shape forces, then guesses.

        They are no more than the answer may still have. `guesses`: how many of them at most.
        """
        most = max(0, min(most, self._params.max_tokens - len(self.generated) - 1))
        forced = self._constraint.forced() if self._constraint is not None else ()
        free = most - len(forced)
        guessed = self._guesses(forced, free if guesses is None else min(free, guesses))
        certain = forced[:most]
        self._draft = Draft(
            (*certain, *guessed.ids), ((1.0,) * len(certain)) + guessed.chances, len(certain)
        )
        self._drafted_at = len(self.generated)
        return self._draft

    def next_ids(self, num_drafts: int = 0) -> tuple[int, ...]:
        """The tokens to run next: the last one generated, then up to `num_drafts` of `draft`."""
        fresh = self._drafted_at == len(self.generated)
        if not fresh or len(self._draft.ids) < num_drafts:
            self.draft(num_drafts)
        ids, num_forced = self._draft.ids[:num_drafts], self._draft.num_certain
        self._forced, self._drafts = ids[:num_forced], ids[num_forced:]
        return (self.generated[-1], *ids)

    @property
    def num_logits(self) -> int:
        """Behind how many of the last tokens of `next_ids` logits are needed."""
        skipped = len(self._forced) if self._num_logprobs is None else 0
        return 1 + len(self._forced) + len(self._drafts) - skipped

    def _guesses(self, forced: tuple[int, ...], most: int) -> Draft:
        if self._drafter is None or most <= 0:
            return Draft()
        guessed = self._drafter.propose([*self.generated, *forced], most)
        if self._constraint is None or not guessed.ids:
            return guessed
        allowed = self._constraint.num_allowed((*forced, *guessed.ids)) - len(forced)
        return Draft(guessed.ids[: max(0, allowed)], guessed.chances[: max(0, allowed)])

    def accept(self, logits: Float) -> str:
        """Choose tokens from the logits [n, vocab] behind the last `num_logits` of `next_ids`.

        Each is chosen as if it came alone; the first that differs from its draft is the last.
        Returns the text that has become safe to show. Raises GenerationError when logits are not
        numbers.
        """
        text, num_right = "", 0
        drafts = (*self._forced, *self._drafts, None)
        unseen = len(drafts) - len(logits)  # forced tokens whose logits were not needed
        rows = (None if index < unseen else logits[index - unseen] for index in range(len(drafts)))
        for row, draft in zip(rows, drafts, strict=True):
            text += self._accept(row)
            if self.generated[-1] != draft:
                break
            num_right += 1
            if self.finish_reason is not None:
                break
        num_right = max(0, num_right - len(self._forced))
        self.num_accepted += num_right
        self.num_rejected += len(self._drafts) - num_right
        self._forced = self._drafts = ()
        if self._num_logprobs is None and self._constraint is not None and self._constraint.ends:
            while self.finish_reason is None:  # the rest is known, and need not run
                text += self._accept(None)
        self._num_shown += len(text)
        if self.finish_reason is not None and self._drafter is not None:
            self._drafter.finish(self.generated)
        return text

    def _accept(self, logits: Float | None) -> str:
        """Choose one token. The logits may be missing where it is forced."""
        token = self._choose(logits)
        if self._num_logprobs is None or logits is None:
            return self._take(token)
        found = self._sampler.logprobs(logits, token, self._num_logprobs)
        return self._take(token, TokenLogprob(token, found.chosen, found.top))

    def _take(self, token: int, logprob: TokenLogprob | None = None) -> str:
        self.generated.append(token)
        if token in self._eos_ids:
            return self._finish("stop")
        if logprob is not None:
            self._logprobs.append((self._num_decoded, logprob))
        decoded = self._detokenizer.add(token)
        self._num_decoded += len(decoded)
        text = self._stops.add(decoded)
        if self._stops.stopped:
            self.finish_reason = "stop"
        elif self._constraint is not None and self._constraint.stopped:
            text += self._finish("stop")
        elif self._is_stuck(token, decoded):
            text += self._finish("repetition")
        elif len(self.generated) >= self._params.max_tokens:
            text += self._finish("length")
        return text

    def _is_stuck(self, token: int, decoded: str) -> bool:
        repeats = self._repetition.add(token)
        return self._counting.add(decoded) or repeats

    def _choose(self, logits: Float | None) -> int:
        """The next token. One that is forced is not drawn, so that it takes no random number."""
        constraint = self._constraint
        forced = constraint.forced() if constraint is not None else ()
        if forced:
            token = forced[0]
        else:
            assert logits is not None
            allowed = None if constraint is None else constraint.mask()
            token = self._sampler.sample(logits, self.generated, self.prompt.ids, allowed)
        if constraint is not None and token not in self._eos_ids:
            constraint.accept(token)
        return token

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
