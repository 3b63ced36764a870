"""Figures of a recipe compared with the reference, for each picture and over all, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qwink.lab.quality import compare_logits, decibels, log_softmax, noise_ratio
from qwink.lab.verify.observe import Observation

Verdict = Literal["safe", "look", "avoid", "unknown"]

# With more clearly changed pictures than this share, the verdict is "avoid", else "look".
MOST_CHANGED = 0.25
# No verdict if the reference gives its choices a lower mean probability: it guesses.
LEAST_CONFIDENCE = 0.2
# Nor if most of its answers repeat themselves. Random weights with tied embeddings do so: they
# repeat their last tokens with a high probability.
MOST_REPETITION = 0.5
LONGEST_PERIOD = 4  # tokens
FEW_PICTURES = 10


@dataclass(frozen=True, slots=True)
class Reference:
    """The answer of `exact` to one question; see `confidence` and `repetition`."""

    name: str
    question: str
    answer: str
    num_tokens: int
    image_tokens: int
    confidence: float
    repetition: float


@dataclass(frozen=True, slots=True)
class PictureFigures:
    """A recipe's answer to one question compared with the reference's.

    `num_agreeing` of `num_tokens` first choices are equal, along the reference's answer;
    `num_clear` of the others the reference found less than half as likely as its own.
    """

    name: str
    answer: str
    same_answer: bool
    num_tokens: int
    num_agreeing: int
    num_clear: int
    kl_nats: float  # mean over the tokens
    snr_db: float  # of the logits
    noise: dict[str, float]  # place → noise over signal

    @property
    def badness(self) -> tuple[int, int, float]:
        """A key that sorts the worst picture last."""
        return self.num_clear, self.num_tokens - self.num_agreeing, self.kl_nats


@dataclass(frozen=True, slots=True)
class RecipeFigures:
    """A recipe's figures over all pictures, the worst picture first."""

    recipe: str
    verdict: Verdict
    summary: str
    num_pictures: int
    num_same_answers: int
    top1_agreement: float
    num_tokens: int
    num_clear: int
    kl_nats: float
    snr_db: float
    snr_db_at: dict[str, float]  # by place in the model
    pictures: tuple[PictureFigures, ...]


def confidence(reference: Observation) -> float:
    """The mean probability that the reference gave the tokens it chose."""
    return float(np.exp(log_softmax(reference.logits).max(-1)).mean())


def repetition(reference: Observation) -> float:
    """The share of tokens that repeat the one `back` before, for the `back` with most of them."""
    ids = reference.ids
    return max(
        float((ids[back:] == ids[:-back]).mean()) if len(ids) > 2 * back else 0.0
        for back in range(1, LONGEST_PERIOD + 1)
    )


def doubt(references: Sequence[Reference]) -> str | None:
    """The reason why agreement with these answers has no meaning; None if it has one."""
    count = len(references)
    sure = sum(reference.confidence for reference in references) / count
    if sure < LEAST_CONFIDENCE:
        return f"exact gives its choices a mean probability of only {sure:.1%}"
    circling = sum(reference.repetition > MOST_REPETITION for reference in references)
    if circling > count / 2:
        return f"exact repeats itself in {circling} of its {count} answers"
    return None


def compare(name: str, found: Observation, reference: Observation) -> PictureFigures:
    """Compare a recipe's observation along the reference's answer with the reference's."""
    logits = compare_logits(found.logits, reference.logits)
    return PictureFigures(
        name,
        found.answer,
        found.answer == reference.answer,
        logits.num_tokens,
        logits.num_agreeing,
        logits.num_clear,
        logits.kl_nats,
        logits.snr_db,
        {
            place: noise_ratio(found.states[place], state)
            for place, state in reference.states.items()
        },
    )


def summarise(
    recipe: str, pictures: Sequence[PictureFigures], why_unknown: str | None = None
) -> RecipeFigures:
    """Figures over all pictures (at least one), and the verdict.

    `why_unknown` is the references' `doubt`; with it, the verdict is "unknown".
    """
    num_tokens = sum(picture.num_tokens for picture in pictures)
    places = dict.fromkeys(place for picture in pictures for place in picture.noise)
    noise = {
        place: [picture.noise[place] for picture in pictures if place in picture.noise]
        for place in places
    }
    num_same = sum(picture.same_answer for picture in pictures)
    worst_first = tuple(sorted(pictures, key=lambda picture: picture.badness, reverse=True))
    verdict, summary = _judge(recipe, worst_first, num_same, why_unknown)
    ratios = [10 ** (-picture.snr_db / 10) for picture in pictures]
    return RecipeFigures(
        recipe,
        verdict,
        summary,
        len(pictures),
        num_same,
        sum(picture.num_agreeing for picture in pictures) / num_tokens,
        num_tokens,
        sum(picture.num_clear for picture in pictures),
        sum(picture.kl_nats * picture.num_tokens for picture in pictures) / num_tokens,
        decibels(sum(ratios) / len(ratios)),
        {place: decibels(sum(found) / len(found)) for place, found in noise.items()},
        worst_first,
    )


def _judge(
    recipe: str, worst_first: Sequence[PictureFigures], num_same: int, why_unknown: str | None
) -> tuple[Verdict, str]:
    count = len(worst_first)
    changed = [picture.name for picture in worst_first if picture.num_clear]
    counted = f"{recipe} answers as exact does on {num_same} of {count} pictures"
    if why_unknown is not None:
        return "unknown", (
            f"{counted}; no verdict: {why_unknown}, which happens with random weights and with "
            "pictures that the model cannot read"
        )
    if changed:
        verdict: Verdict = "look" if len(changed) <= MOST_CHANGED * count else "avoid"
        return verdict, f"{counted}; clearly changed: {', '.join(changed)}"
    rest = (
        ""
        if num_same == count
        else "; the others differ only in choices that exact finds nearly as likely"
    )
    hint = "" if count >= FEW_PICTURES else "; these are too few pictures for a reliable verdict"
    return "safe", f"{counted}{rest}{hint}"
