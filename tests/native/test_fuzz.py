"""Operators are given shapes, attributes and indices that do not fit: each is refused, and no run
writes where it must not (`make sanitize` runs these tests under ASan and UBSan)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.native.cases import MADE, OPTIONAL, refusal, with_input, wrong_cases
from tests.native.fuzz import SUBJECTS, fuzz_one
from tests.native.random_cases import RANDOM


@pytest.mark.parametrize("made", MADE)
def test_what_is_wrong_in_one_place_is_refused(any_library: Path, made: str) -> None:
    case = MADE[made]()
    assert refusal(any_library, case) is None
    for name, wrong in wrong_cases(case):
        message = refusal(any_library, wrong)
        assert message is not None, f"accepted: {name}"
        assert "qwink: " in message, name


@pytest.mark.parametrize("made", MADE)
def test_what_is_wrong_in_several_places_ends_in_an_error_or_a_result(
    library: Path, made: str
) -> None:
    """Changes may fit together again; then the run must stay inside its memory."""
    draw = random.Random(made)
    case = MADE[made]()
    for _ in range(40):
        mixed = case
        for _ in range(draw.choice((2, 2, 3))):
            _, mixed = draw.choice(list(wrong_cases(mixed)))
        if draw.random() < 0.3:
            name = draw.choice(list(case.inputs))
            mixed = with_input(mixed, name, None) if name in OPTIONAL[case.op] else mixed
        refusal(library, mixed)  # any other exception fails the test


@pytest.mark.parametrize("subject", SUBJECTS)
def test_random_nodes_run_or_are_refused(library: Path, subject: str) -> None:
    """`make fuzz` goes on from there."""
    outcomes: Counter[str] = Counter()
    for number in range(24):
        outcomes += fuzz_one(library, subject, number)
    assert outcomes["runs"] > 5
    assert outcomes["refused"] > 5


def test_every_operator_is_made_at_random() -> None:
    assert set(RANDOM) == set(OPTIONAL)
