"""How likely a drafted token is right: learned from what became of earlier ones."""

from __future__ import annotations

from dataclasses import dataclass

_LENGTHS = (3, 4, 6, 9, 16)  # at which length of a match a class begins
_AGREE = 0.999
_MAJORITY = 0.7
_STRENGTH = 8  # drafts that an assumption counts as
_MOST = 64  # drafts that count, so that newer ones count more

# What is assumed at first, from answers of JSON: [votes][length of the match], for tokens that are
# digits and others. Votes: one; two or three that agree; more that agree; a majority; a minority.
_OTHERS = (
    (0.3, 0.7, 0.85, 0.9, 0.9, 0.9),
    (0.7, 0.9, 0.95, 0.97, 0.97, 0.98),
    (0.9, 0.97, 0.98, 0.98, 0.98, 0.98),
    (0.3, 0.3, 0.6, 0.6, 0.6, 0.6),
    (0.13, 0.16, 0.25, 0.25, 0.25, 0.25),
)
_DIGITS = (
    (0.1, 0.2, 0.25, 0.35, 0.35, 0.8),
    (0.1, 0.3, 0.7, 0.8, 0.8, 0.9),
    (0.3, 0.5, 0.9, 0.95, 0.95, 0.95),
    (0.2, 0.22, 0.25, 0.35, 0.35, 0.5),
    (0.1, 0.1, 0.12, 0.15, 0.15, 0.15),
)


@dataclass(frozen=True, slots=True)
class Signs:
    """What is known about a drafted token.

    `length`: tokens before it that equal those before its origin; 0 for an origin that was
    found again by one token. `votes`: places that propose the token; `share`: their part of all.
    `digit`: whether its text is a number. `again`: how many tokens after an origin found again.
    """

    length: int
    votes: int
    share: float
    digit: bool
    again: int = 0


class Chances:
    """Of one kind of answer."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int, bool, bool], tuple[float, float]] = {}  # right, all

    def of(self, signs: Signs) -> float:
        """The probability that the token is right, if those before it are."""
        cell = _cell(signs)
        right, count = self._cells.get(cell, (0.0, 0.0))
        votes, length, digit, _ = cell
        assumed = (_DIGITS if digit else _OTHERS)[votes][length]
        return (right + _STRENGTH * assumed) / (count + _STRENGTH)

    def learn(self, signs: Signs, *, right: bool) -> None:
        """What became of a token."""
        cell = _cell(signs)
        before, count = self._cells.get(cell, (0.0, 0.0))
        if count >= _MOST:
            before, count = before / 2, count / 2
        self._cells[cell] = before + right, count + 1


def _cell(signs: Signs) -> tuple[int, int, bool, bool]:
    if signs.share >= _AGREE:
        votes = 0 if signs.votes == 1 else 1 if signs.votes < 4 else 2
    else:
        votes = 3 if signs.share >= _MAJORITY else 4
    found_again = signs.length == 0
    # The first token after an origin found again is as likely as after a match of two or three.
    length = signs.length + (min(2 + signs.again, 4) if found_again else 0)
    return votes, sum(length >= begin for begin in _LENGTHS), signs.digit, found_again
