"""Answers that are stuck, and documents that only look so."""

from __future__ import annotations

import random

import pytest

from qwink.engine.repetition import CountingGuard, RepetitionGuard


def _tripped_at(tokens: list[int]) -> int | None:
    guard = RepetitionGuard()
    return next((n for n, token in enumerate(tokens, 1) if guard.add(token)), None)


@pytest.mark.parametrize(
    ("period", "expected"), [(1, 128), (2, 128), (16, 128), (64, 512), (65, 325), (200, 1000)]
)
def test_endless_repetition_is_noticed(period: int, expected: int) -> None:
    varied = list(range(1000, 1100))
    assert _tripped_at(varied + list(range(period)) * 600) == 100 + expected


def test_ordinary_repetition_passes() -> None:
    rule = [1, 2] * 30  # | --- | --- | ...
    leaders = [3] * 100  # ........
    receipt = list(range(10, 22)) * 10
    numbers = [token for n in range(200) for token in (n % 10, 7, 8)]
    for tokens in (rule, leaders, receipt, list(range(63)) * 7, list(range(200)) * 4):
        assert _tripped_at([*range(900, 950), *tokens, *range(800, 850)]) is None
    assert _tripped_at(numbers[:200]) is None


def test_a_broken_repetition_starts_anew() -> None:
    assert _tripped_at(([1] * 127 + [2]) * 4) is None
    # The same with a group of tokens of which one changes, as in a numbered list.
    tokens = [token for n in range(100) for token in (4, 5, 6, 100 + n)]
    assert _tripped_at(tokens) is None


def _counted_at(text: str) -> int | None:
    """After how many tokens the guard trips, each of three characters."""
    guard = CountingGuard()
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    return next((n for n, piece in enumerate(pieces, 1) if guard.add(piece)), None)


@pytest.mark.parametrize(
    "line",
    ["Item {}: tea and cake\n", "{}. The ferry\n", "| {} | 4 | open | 7 |\n", "page {0} of {0}, "],
)
def test_a_count_without_end_is_noticed(line: str) -> None:
    text = "".join(line.format(number) for number in range(1, 2000))
    found = _counted_at("The list:\n" + text)
    assert found is not None
    assert found >= 640


def test_real_tables_and_lists_pass() -> None:
    rng = random.Random(0)
    rows = [
        f"| {n} | {rng.randint(1, 99)} | {rng.choice(('Oslo', 'Bergen'))} | {rng.random():.2f} |\n"
        for n in range(1, 900)
    ]
    prices = [f"{rng.choice(('Tea', 'Soup'))} {rng.randint(1, 9)}.50\n" for _ in range(900)]
    same = ["| 1 | 0.50 | open |\n"] * 30
    for text in ("".join(rows), "".join(prices), "".join(same)):
        assert _counted_at(text) is None
    years = ", ".join(map(str, range(1900, 2027)))
    days = " ".join(map(str, range(1, 32)))
    numbered = "".join(f"{n} let x = {rng.randint(0, 9)}\n" for n in range(1, 400))
    for text in (years, days * 12, numbered, "0123456789" * 300):
        assert _counted_at(text) is None


def test_text_without_numbers_costs_no_memory() -> None:
    guard = CountingGuard()
    for _ in range(3000):
        assert not guard.add("word ")
    assert len(guard._gap) + len(guard._rest) < 20_000
