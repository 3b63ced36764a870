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
from qwink.types import Prompt

Speculate = Literal["auto", "off"]
SPECULATE: tuple[Speculate, ...] = ("auto", "off")


@dataclass(frozen=True, slots=True)
class DraftHints:
    """What a request tells about its answer.

    Earlier answers of the same `scope` (such as an API key) are drafts, and only those. `question`
    is what they must have in common, by default the prompt's text. `prediction` is a text that
    the answer will resemble.
    """

    scope: str = ""
    question: bytes | None = None
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

    def drafter(self, prompt: Prompt, hints: DraftHints = NO_HINTS) -> Drafter | None:
        """For one answer; None if there are no drafts."""
        if self._reason is not None:
            return None
        prediction = self._tokenizer.encode_text(hints.prediction) if hints.prediction else ()
        return Drafter(
            prompt, self._is_digits, self.earlier, hints.scope, hints.question, prediction
        )


def _reason(traits: Traits, speculate: Speculate) -> str | None:
    """Why there are no drafts."""
    if speculate == "off":
        return "as chosen"
    if not traits.invariant:
        return "with this engine, rows that run together change each other's rounding"
    if traits.cheap_rows < 2:
        return "with this engine, each row of a step takes as long as the first"
    return None
