"""How tokens are chosen: what the user set, else by the task, else the model's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from qwink.engine.sampler import validate
from qwink.types import SamplingParams, Shape, Task

# Answers that are right or wrong. The likeliest token is the best, and the same picture gives the
# same answer.
GREEDY_TASKS: frozenset[Task] = frozenset({"ocr", "document", "locate"})
DOCUMENT_TOKENS = 2048  # a full page in Markdown takes about 1,500
_RANDOM = frozenset({"temperature", "top_k", "top_p", "min_p", "seed"})


@dataclass(frozen=True, slots=True)
class AskedSampling:
    """The model's defaults with what the user set, and which fields the user set.

    `shape`: the form that the answer must have; None: any.
    """

    params: SamplingParams
    given: frozenset[str]
    shape: Shape | None = None

    @classmethod
    def of(
        cls, defaults: SamplingParams, given: Mapping[str, Any], shape: Shape | None = None
    ) -> AskedSampling:
        """`given` are fields of SamplingParams. Raises OptionError for a value out of range."""
        params = replace(defaults, **given)
        validate(params)
        return cls(params, frozenset(given), shape)

    def for_task(self, task: Task | None) -> SamplingParams:
        """Greedy for tasks that read or locate, and for answers that must have a shape, unless the
        user set how tokens are drawn.

        A document's answer may be as long as a page needs, unless the user set `max_tokens`.
        """
        params = self.params
        shaped = self.shape is not None and not self.shape.free
        exact = task in GREEDY_TASKS or shaped
        if exact and not self.given & _RANDOM:
            params = replace(params, temperature=0.0)
        if task == "document" and "max_tokens" not in self.given:
            params = replace(params, max_tokens=max(params.max_tokens, DOCUMENT_TOKENS))
        return params
