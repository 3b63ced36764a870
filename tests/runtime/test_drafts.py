"""What is drafted from where, and how sure it is said to be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from qwink.model.rope import mrope_positions
from qwink.runtime.chances import Chances, Signs
from qwink.runtime.drafts import Drafter
from qwink.runtime.earlier import EarlierAnswers
from qwink.types import Grid, ImageSpan, Prompt

DIGITS = range(10)


def drafter(
    ids: Sequence[int], earlier: EarlierAnswers | None = None, scope: str = "", **options: object
) -> Drafter:
    """For a prompt of these tokens, the third to sixth of an image where there are as many."""
    spans = (ImageSpan(2, 4, Grid(1, 4, 4), "picture"),) if len(ids) > 6 else ()
    positions, following = mrope_positions(len(ids), spans)
    prompt = Prompt(np.asarray(ids), spans, positions, following)
    is_digits = DIGITS.__contains__
    return Drafter(prompt, is_digits, earlier or EarlierAnswers(), scope, **options)  # type: ignore[arg-type]


def test_from_the_prompts_text() -> None:
    """Never from the placeholders of an image."""
    one = drafter([20, 21, 99, 99, 99, 99, 22, 23, 24, 25])
    assert one.propose([22, 23], 9).ids[:2] == (24, 25)
    one = drafter([20, 21, 99, 99, 99, 99, 22, 23, 24, 25])
    assert one.propose([99, 99], 9).ids == ()


def test_from_the_answer_so_far() -> None:
    one = drafter([20])
    assert one.propose([30, 31, 32, 33, 40, 30, 31], 2).ids == (32, 33)


def test_from_earlier_answers_of_the_scope() -> None:
    earlier = EarlierAnswers()
    drafter([20, 21], earlier, "mine").finish([30, 31, 32, 33])
    assert drafter([20, 21], earlier, "mine").propose([30], 9).ids == (31, 32, 33)
    assert drafter([20, 21], earlier, "yours").propose([30], 9).ids == ()
    assert drafter([20, 22], earlier, "mine").propose([30], 9).ids == ()
    shaped = drafter([20, 22], earlier, "mine", question=b"schema")
    shaped.finish([40, 41, 42])
    assert drafter([25], earlier, "mine", question=b"schema").propose([40], 9).ids == (41, 42)


def test_from_the_prediction() -> None:
    one = drafter([20, 21], prediction=[30, 31, 32, 33, 34])
    assert one.propose([30], 9).ids == (31, 32, 33, 34)
    # After a token that differs, its place is found again by the next one that is the same.
    one = drafter([20, 21], prediction=[30, 31, 32, 33, 34, 35, 36, 37, 38])
    one.propose([30], 9)
    one.propose([30, 31, 32, 33, 34], 9)
    assert one.propose([30, 31, 32, 33, 34, 70], 9).ids == ()
    assert one.propose([30, 31, 32, 33, 34, 70, 36], 9).ids == (37, 38)


def test_votes() -> None:
    """The longest match decides, then the number of places."""
    earlier = EarlierAnswers()
    for ids in ([30, 31, 40], [30, 31, 41], [30, 31, 41], [50, 51, 31, 60], [52, 51, 31, 61]):
        drafter([20, 21], earlier).finish(ids)
    assert drafter([20, 21], earlier).propose([30, 31], 1).ids == (41,)
    assert drafter([20, 21], earlier).propose([50, 51, 31], 1).ids == (60,)


def test_chances_follow_what_came() -> None:
    earlier = EarlierAnswers()
    for _ in range(9):
        drafter([20, 21], earlier).finish([30, 31, 32])
    before = drafter([20, 21], earlier).propose([30], 9).chances
    for number in range(40):
        one = drafter([20, 21], earlier)
        one.propose([30], 9)
        one.finish([30, 70 + number])
    after = drafter([20, 21], earlier).propose([30], 9).chances
    assert after[0] < before[0] / 2
    assert 0 < after[0] < before[0] < 1


def test_chances_by_signs() -> None:
    chances = Chances()
    sure, unsure = Signs(8, 4, 1.0, False), Signs(2, 1, 0.4, False)
    assert chances.of(sure) > 0.9 > 0.3 > chances.of(unsure)
    assert chances.of(Signs(3, 1, 1.0, True)) < chances.of(Signs(3, 1, 1.0, False))
    for _ in range(200):
        chances.learn(sure, right=False)
        chances.learn(unsure, right=True)
    assert chances.of(sure) < 0.2
    assert chances.of(unsure) > 0.8


@pytest.mark.parametrize("most", [0, 1, 5])
def test_no_more_than_asked(most: int) -> None:
    one = drafter([20, 21], prediction=[30, 31, 32, 33, 34, 35, 36, 37, 38])
    draft = one.propose([30], most)
    assert len(draft.ids) == len(draft.chances) == most
