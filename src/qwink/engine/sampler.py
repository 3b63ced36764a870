"""Logits to the next token.

Order: forbidden ids, what the answer's shape does not allow, and then as in Transformers:
repetition penalty, presence and frequency penalty,
temperature, top-k, top-p (of what top-k left), min-p. Top-p counts mass before min-p cuts.

Top-k: Fan et al., 2018, arXiv:1805.04833. Top-p: Holtzman et al., 2019, arXiv:1904.09751.
Min-p: Nguyen et al., 2024, arXiv:2407.01082. Repetition penalty: Keskar et al., 2019 (CTRL),
arXiv:1909.05858. Presence and frequency penalty: OpenAI's API reference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qwink.errors import GenerationError, OptionError
from qwink.types import SamplingParams

Floats = NDArray[np.float32]
_NUM_FIRST_SORTED = 256  # top-p rarely needs more candidates than this
_NOT_NUMBERS = (
    "the model produced values that are not numbers; check the artifact (qwink models --check), "
    "or export again with the recipe exact or quality"
)


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of probabilities: of the chosen token, and (id, value) of the likeliest.

    Of the model's own distribution: after masking forbidden ids, before penalties and temperature.
    """

    chosen: float
    top: tuple[tuple[int, float], ...]


class Sampler:
    """Chooses the tokens of one sequence. The same seed and logits give the same tokens."""

    def __init__(self, params: SamplingParams, forbidden: ArrayLike, vocab_size: int) -> None:
        """`forbidden`: ids never chosen. `vocab_size`: width V of the logits.

        Raises OptionError as `validate` does.
        """
        validate(params)
        self._params = params
        self._vocab_size = vocab_size
        forbidden = np.asarray(forbidden, dtype=np.int64)
        self._forbidden = forbidden[forbidden < vocab_size]
        seed = None if params.seed is None else params.seed % 2**64  # NumPy takes none below 0
        self._random = np.random.default_rng(seed)

    def sample(
        self,
        logits: Floats,
        generated: Sequence[int] = (),
        prompt_ids: ArrayLike = (),
        allowed: NDArray[np.bool_] | None = None,
    ) -> int:
        """The next token's id, given logits [V] and the ids generated so far and of the prompt.

        `allowed` [V]: which ids may be chosen; None: all. `logits` is left as it is. Raises
        GenerationError for NaN or +inf, or when no id is left.
        """
        scores = self.scores(logits)
        if allowed is not None:
            np.copyto(scores, -np.inf, where=~allowed)
            if scores.max() == -np.inf:
                raise GenerationError("the answer's shape leaves no token to choose; change it")
        self._penalise(scores, generated, prompt_ids)
        if self._params.temperature == 0:
            return int(scores.argmax())
        ids, probabilities = self._candidates(scores)
        cumulative = np.cumsum(probabilities)
        # Below the total even when the product is rounded up.
        draw = min(self._random.random() * cumulative[-1], np.nextafter(cumulative[-1], 0))
        # `right`: a candidate of probability 0 is not drawn, not even by a draw of 0.
        return int(ids[np.searchsorted(cumulative, draw, side="right")])

    def logprobs(self, logits: Floats, token: int, num_top: int = 0) -> Logprobs:
        """Log-probabilities of `token` and of the `num_top` likeliest, highest first, of [V]."""
        scores = self.scores(logits)
        peak = scores.max()
        normaliser = float(peak) + math.log(float(np.exp(scores - peak).sum(dtype=np.float64)))
        num_top = min(num_top, self._vocab_size - len(self._forbidden))
        top: list[tuple[int, float]] = []
        if num_top > 0:
            ids = np.argpartition(scores, -num_top)[-num_top:]
            ids = ids[np.argsort(-scores[ids], kind="stable")]
            top = [(int(i), float(scores[i]) - normaliser) for i in ids]
        return Logprobs(float(scores[token]) - normaliser, tuple(top))

    def scores(self, logits: Floats) -> Floats:
        """A copy of logits [V] with minus infinity for the ids that are never chosen.

        Raises GenerationError for NaN or +inf, or when no id is left.
        """
        if logits.shape != (self._vocab_size,):
            raise ValueError(f"logits of shape {logits.shape}, expected ({self._vocab_size},)")
        # The maximum of anything with NaN is NaN, so one pass finds both.
        peak = float(logits.max())
        if math.isnan(peak) or peak == math.inf:
            raise GenerationError(_NOT_NUMBERS)
        scores = logits.astype(np.float32)
        scores[self._forbidden] = -np.inf
        if scores.max() == -np.inf:
            raise GenerationError("the model leaves no token to choose; check the artifact")
        return scores

    def _penalise(self, scores: Floats, generated: Sequence[int], prompt_ids: ArrayLike) -> None:
        params = self._params
        if params.repetition_penalty != 1:
            seen = np.concatenate(
                [np.asarray(prompt_ids, dtype=np.int64), np.asarray(generated, dtype=np.int64)]
            )
            values = scores[seen]
            penalty = np.float32(params.repetition_penalty)
            scores[seen] = np.where(values > 0, values / penalty, values * penalty)
        if (params.presence_penalty != 0 or params.frequency_penalty != 0) and len(generated):
            ids, counts = np.unique(np.asarray(generated, dtype=np.int64), return_counts=True)
            scores[ids] -= (params.presence_penalty + params.frequency_penalty * counts).astype(
                np.float32
            )

    def _candidates(self, scores: Floats) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Ids that may be drawn and their probabilities, not normalised; the likeliest has 1."""
        params = self._params
        ids: NDArray[np.int64] | None = None  # None: all, so that nothing is copied
        if 0 < params.top_k < len(scores):
            # Ties with the k-th stay, as in Transformers.
            smallest = np.partition(scores, -params.top_k)[-params.top_k]
            ids = np.flatnonzero(scores >= smallest)
            scores = scores[ids]
        peak = scores.max()
        # After subtracting, what a tiny temperature overflows to is -inf: probability 0.
        with np.errstate(over="ignore"):
            weights = np.exp((scores - peak) / np.float64(params.temperature))
        keep: NDArray[np.int64] | None = None
        if params.top_p < 1:
            keep = _nucleus(weights, params.top_p)
        if params.min_p > 0:
            keep = np.arange(len(weights)) if keep is None else keep
            keep = keep[weights[keep] >= params.min_p]
        if keep is not None:
            ids, weights = (keep if ids is None else ids[keep]), weights[keep]
        return (np.arange(len(weights)) if ids is None else ids), weights


def _nucleus(weights: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices of the fewest weights whose sum reaches `top_p` of the total, and ties of theirs."""
    target = top_p * float(weights.sum())
    count = min(_NUM_FIRST_SORTED, len(weights))
    while True:
        # Values only: sorting indices takes ten times as long.
        largest = np.sort(np.partition(weights, -count)[-count:])[::-1]
        cumulative = np.cumsum(largest)
        if cumulative[-1] >= target or count == len(weights):
            last = min(int(np.searchsorted(cumulative, target)), count - 1)
            return np.flatnonzero(weights >= largest[last])
        count = min(count * 16, len(weights))


def validate(params: SamplingParams) -> None:
    """Raises OptionError, naming the option and its range, for the first that is out of range."""
    _require_integer("max_tokens", params.max_tokens, 1, None)
    _require("temperature", params.temperature, params.temperature >= 0, "0 (greedy) or more")
    _require_integer("top_k", params.top_k, 0, None)
    _require("top_p", params.top_p, 0 < params.top_p <= 1, "above 0 and at most 1")
    _require("min_p", params.min_p, 0 <= params.min_p <= 1, "between 0 and 1")
    penalty = params.repetition_penalty
    _require("repetition_penalty", penalty, 0.01 <= penalty <= 100, "between 0.01 and 100")
    presence, frequency = params.presence_penalty, params.frequency_penalty
    _require("presence_penalty", presence, -2 <= presence <= 2, "between -2 and 2")
    _require("frequency_penalty", frequency, -2 <= frequency <= 2, "between -2 and 2")
    if params.seed is not None:
        _require_integer("seed", params.seed, -(2**63), 2**64 - 1)
    stop: object = params.stop
    if not isinstance(stop, tuple) or not all(isinstance(text, str) and text for text in stop):
        raise OptionError(f"stop is {params.stop!r}; it must be a tuple of texts, none empty")


def _require(name: str, value: float, holds: bool, what: str) -> None:
    if not (math.isfinite(value) and holds):
        raise OptionError(f"{name} is {value}; it must be {what}")


def _require_integer(name: str, value: int, low: int, high: int | None) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        limits = f"{low} or more" if high is None else f"between {low} and {high}"
        raise OptionError(f"{name} is {value!r}; it must be a whole number, {limits}")
