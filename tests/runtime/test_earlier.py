"""Earlier answers are apart by scope and question, and bounded in bytes."""

from __future__ import annotations

import numpy as np

from qwink.runtime.earlier import START, EarlierAnswers


def test_scopes_and_questions_are_apart() -> None:
    earlier = EarlierAnswers()
    earlier.add("a", b"one", [1, 2, 3])
    assert earlier.find("a", b"one").ngrams.matches([START, 1], 9, 9) == [(2, 2)]
    assert earlier.find("b", b"one").ngrams.matches([START, 1], 9, 9) == []
    assert earlier.find("a", b"two").ngrams.matches([START, 1], 9, 9) == []
    assert earlier.find("a", b"one").chances is not earlier.find("b", b"one").chances


def test_bytes_are_bounded() -> None:
    """The least recently used questions go first."""
    earlier = EarlierAnswers(max_bytes=400_000)
    random = np.random.default_rng(0)
    for number in range(60):
        earlier.add("", b"asked often", [1, 2, 3])
        earlier.add("", str(number).encode(), random.integers(0, 10**5, 200).tolist())
        assert earlier.num_bytes <= 400_000
    assert len(earlier.find("", b"asked often").ngrams) > 0
    assert len(earlier.find("", b"59").ngrams) > 0
    assert len(earlier.find("", b"0").ngrams) == 0


def test_one_question_is_bounded() -> None:
    earlier = EarlierAnswers()
    for number in range(200):
        earlier.add("", b"one", [number, *range(500)])
    answered = earlier.find("", b"one")
    assert 8_000 < len(answered.ngrams) < 17_000
    assert answered.ngrams.matches([START, 199], 9, 9)  # the newest is there
    assert not answered.ngrams.matches([START, 0], 9, 9)


def test_an_answer_larger_than_everything() -> None:
    earlier = EarlierAnswers(max_bytes=1000)
    earlier.add("", b"one", list(range(500)))
    assert earlier.num_bytes == 0
    assert len(earlier.find("", b"one").ngrams) == 0
