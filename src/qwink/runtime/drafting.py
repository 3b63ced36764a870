"""Whether and from what a model's answers are drafted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from qwink.engine.base import Traits
from qwink.errors import OptionError
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.drafts import Drafter
from qwink.runtime.earlier import EarlierAnswers
from qwink.types import Prompt, Shape

Speculate = Literal["auto", "off"]
SPECULATE: tuple[Speculate, ...] = ("auto", "off")
_MAX_PREDICTION = 1 << 18  # characters; more than any answer has


@dataclass(frozen=True, slots=True)
class DraftHints:
    """What a request tells about its answer.

    Only earlier answers of the same `scope`, such as an API key, are drafts. `prediction` is a
    text that the answer will resemble.
    """

    scope: str = ""
    prediction: str = ""


NO_HINTS = DraftHints()


class Drafting:
    """Makes the drafters of a model's answers, which share the earlier answers.

    With "auto", there are drafts if the engine guarantees that rows of a step do not change each
    other's results, and computes some at little cost; with "off" there are none. Answers are the
    same in both cases.
    """

    def __init__(self, traits: Traits, tokenizer: Tokenizer, speculate: Speculate = "auto") -> None:
        """Raises OptionError for another value of `speculate`."""
        if speculate not in SPECULATE:
            raise OptionError(f"speculate is {speculate!r}; it must be {' or '.join(SPECULATE)}")
        self.earlier = EarlierAnswers()
        self._tokenizer, self._reason = tokenizer, _reason(traits, speculate)

        @lru_cache(4096)
        def is_digits(token: int) -> bool:
            return tokenizer.decode([token]).strip().isdecimal()

        self._is_digits = is_digits

    @property
    def why_off(self) -> str | None:
        """Why there are no drafts; None if there are."""
        return self._reason

    @property
    def about(self) -> str:
        """For people: whether there are drafts, and why not."""
        return "auto" if self._reason is None else f"off: {self._reason}"

    def unused(self, hints: DraftHints) -> tuple[str, ...]:
        """A warning if a prediction is of no use."""
        if self._reason is None or not hints.prediction:
            return ()
        return (f"the prediction is not used, since there are no drafts ({self._reason})",)

    def drafter(
        self, prompt: Prompt, hints: DraftHints = NO_HINTS, shape: Shape | None = None
    ) -> Drafter | None:
        """For one answer; None if there are no drafts.

        Earlier answers that count are those of the same shape or, without one, to the same text.
        """
        if self._reason is not None:
            return None
        question = None if shape is None else f"{shape.kind} {shape.source}".encode()
        text = hints.prediction[:_MAX_PREDICTION]
        prediction = self._tokenizer.encode_text(text) if text else ()
        return Drafter(prompt, self._is_digits, self.earlier, hints.scope, question, prediction)


def _reason(traits: Traits, speculate: Speculate) -> str | None:
    """Why there are no drafts."""
    if speculate == "off":
        return "as chosen"
    if not traits.invariant:
        return "with this engine, rows that run together change each other's rounding"
    if traits.cheap_rows < 2:
        return "with this engine, each row of a step takes as long as the first"
    return None
