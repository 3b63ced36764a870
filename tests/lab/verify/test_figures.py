"""Figures and verdicts of constructed observations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qwink.lab.verify.figures import (
    PictureFigures,
    Reference,
    compare,
    confidence,
    doubt,
    repetition,
    summarise,
)
from qwink.lab.verify.observe import Observation


def observation(probabilities: list[list[float]], answer: str = "yes") -> Observation:
    """One whose logits give each token these probabilities."""
    logits = np.log(np.array(probabilities, np.float32))
    states = {"output": np.ones((1, 2, 3), np.float32)}
    return Observation(logits.argmax(-1), logits, states, answer)


def picture(
    name: str = "a", *, clear: int = 0, agreeing: int = 10, same: bool = True
) -> PictureFigures:
    return PictureFigures(name, "yes", same, 10, agreeing, clear, 0.1, 20.0, {"output": 0.01})


def test_equal_observations() -> None:
    reference = observation([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])
    assert confidence(reference) == pytest.approx(0.75)
    figures = compare("a", reference, reference)
    assert figures.same_answer
    assert (figures.num_tokens, figures.num_agreeing, figures.num_clear) == (2, 2, 0)
    assert figures.kl_nats == pytest.approx(0, abs=1e-9)
    assert figures.noise == {"output": 0}


def test_another_choice_counts_as_clear_where_the_reference_was_sure() -> None:
    reference = observation([[0.5, 0.4, 0.1], [0.5, 0.4, 0.1], [0.8, 0.1, 0.1]])
    found = observation([[0.4, 0.5, 0.1], [0.3, 0.2, 0.5], [0.9, 0.05, 0.05]], "no")
    figures = compare("a", found, reference)
    assert not figures.same_answer
    assert figures.num_agreeing == 1
    assert figures.num_clear == 1  # 0.1 instead of 0.5; 0.4 instead of 0.5 is nearly as likely


def test_all_the_same_is_safe() -> None:
    found = summarise("fast", [picture(str(index)) for index in range(12)])
    assert found.verdict == "safe"
    assert found.summary == "fast answers as exact does on 12 of 12 pictures"
    assert found.top1_agreement == 1
    assert found.snr_db == pytest.approx(20)
    assert found.snr_db_at == {"output": pytest.approx(20)}


def test_few_pictures_are_called_few() -> None:
    assert "too few pictures" in summarise("fast", [picture()]).summary


def test_differences_between_nearly_equal_choices_are_safe() -> None:
    pictures = [picture(str(index)) for index in range(11)] + [picture(agreeing=9, same=False)]
    found = summarise("fast", pictures)
    assert found.verdict == "safe"
    assert "11 of 12" in found.summary
    assert "nearly as likely" in found.summary


def test_a_clear_difference_is_to_be_looked_at() -> None:
    pictures = [picture(str(index)) for index in range(11)]
    pictures.append(picture("odd.png", clear=1, agreeing=8, same=False))
    found = summarise("fast", pictures)
    assert found.verdict == "look"
    assert found.summary.endswith("clearly changed: odd.png")
    assert found.pictures[0].name == "odd.png"  # the worst first


def test_many_clear_differences_are_too_many() -> None:
    pictures = [picture(str(i), clear=i % 2, agreeing=9, same=i % 2 == 0) for i in range(10)]
    assert summarise("small", pictures).verdict == "avoid"


def reference(confidence: float = 0.9, repetition: float = 0.1) -> Reference:
    return Reference("a", "What?", "yes", 20, 64, confidence, repetition)


@pytest.mark.parametrize("clear", [0, 5])
def test_a_reference_that_knows_nothing_allows_no_verdict(clear: int) -> None:
    found = summarise("fast", [picture(clear=clear)], doubt([reference(confidence=0.001)]))
    assert found.verdict == "unknown"
    assert "0.1%" in found.summary
    assert "random weights" in found.summary


def test_a_reference_that_repeats_itself_allows_no_verdict() -> None:
    assert doubt([reference(), reference()]) is None
    assert doubt([reference(repetition=0.9), reference()]) is None  # a single one is allowed
    why = doubt([reference(repetition=0.9), reference(repetition=1), reference()])
    assert why is not None
    assert "2 of its 3 answers" in why


def test_repetition_of_answers() -> None:
    def share(*ids: int) -> float:
        reference = observation([[0.9, 0.1]])
        return repetition(replace(reference, ids=np.array(ids)))

    assert share(5, 5, 5, 5, 5) == 1
    assert share(*[1, 2, 3] * 5) == 1
    assert share(*range(20)) == 0
    assert share(7) == share(7, 7) == 0  # too short to tell
    assert share(1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10) == pytest.approx(0.1)


def test_places_that_some_pictures_lack() -> None:
    short = PictureFigures("b", "yes", True, 1, 1, 0, 0.1, 20.0, {})
    assert summarise("fast", [short, picture()]).snr_db_at == {"output": pytest.approx(20)}
