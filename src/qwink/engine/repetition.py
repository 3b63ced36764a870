"""Notices answers that have got stuck: the same tokens over and over, or a count without end."""

from __future__ import annotations

import re
from collections import deque

import numpy as np

_PIECES = re.compile(r"[0-9]+|[^0-9]+")
_DIGITS = frozenset("0123456789")  # not all that Python calls digits, such as ¹
_LONGEST_GAP = 300  # characters between two numbers that are compared


class RepetitionGuard:
    """Notices the same tokens over and over.

    Trips when the last tokens consist of one group of tokens, repeated often enough and covering at
    least `min_tokens`: at least `min_repeats` times, or `min_long_repeats` times if the group has
    more than `long_period` tokens. The defaults are patient, since documents do repeat themselves:
    a table's rule "| --- | --- |" of 30 columns (60 tokens), dot leaders (up to about 100), ten
    identical lines of a receipt (each under 13 tokens), seven long ones, or a paragraph that is
    there four times must pass; a stuck model repeats without end and loses only a little time.
    """

    def __init__(
        self,
        max_period: int = 256,
        min_repeats: int = 8,
        min_tokens: int = 128,
        long_period: int = 64,
        min_long_repeats: int = 5,
    ) -> None:
        periods = np.arange(1, max_period + 1)
        repeats = np.where(periods > long_period, min_long_repeats, min_repeats)
        # How many tokens in a row must equal the one a period before: one group fewer than covered.
        covered = np.maximum(min_tokens, repeats * periods)
        self._needed = covered - periods
        self._runs = np.zeros(max_period, dtype=np.int64)
        self._recent = np.full(max_period, -1, dtype=np.int64)  # newest first

    def add(self, token_id: int) -> bool:
        """Takes the next generated id; True when the sequence is stuck. Costs microseconds."""
        self._runs += 1
        self._runs *= self._recent == token_id
        self._recent[1:] = self._recent[:-1]
        self._recent[0] = token_id
        return bool((self._runs >= self._needed).any())


class CountingGuard:
    """Notices a count without end: "Item 1: tea, Item 2: tea, Item 3: ...".

    Numbers count when the text before each is that of the number a period before, and the steps are
    equal: 1, 2, 3 or 10, 20, 30, also with numbers between that stay the same. Trips after
    `min_numbers` of them in at least `min_tokens` tokens. A real table has numbers that do not
    follow from the row before; a year's days, a ruler or the line numbers of a page are shorter.
    """

    def __init__(self, max_period: int = 4, min_numbers: int = 160, min_tokens: int = 640) -> None:
        self._min_numbers, self._min_tokens = min_numbers, min_tokens
        self._units: deque[tuple[str, int]] = deque(maxlen=2 * max_period + 1)  # newest last
        self._runs = [0] * max_period
        self._begun = [0] * max_period  # tokens when the run began
        self._rest = ""  # a number that may go on
        self._gap = ""  # the text before the next number
        self._num_tokens = 0

    def add(self, text: str) -> bool:
        """Takes the text of the next token; True when the answer counts without end."""
        self._num_tokens += 1
        if not text:
            return False
        pieces = _PIECES.findall(self._rest + text)
        self._rest = pieces.pop() if pieces[-1][0] in _DIGITS else ""
        stuck = False
        for piece in pieces:
            stuck = self._take(piece) or stuck
        return stuck

    def _take(self, piece: str) -> bool:
        if piece[0] not in _DIGITS:
            self._gap = (self._gap + piece)[-_LONGEST_GAP:]
            return False
        self._units.append((self._gap, int(piece[-18:])))
        self._gap = ""
        for period in range(1, len(self._runs) + 1):
            if not self._counts_on(period):
                self._runs[period - 1], self._begun[period - 1] = 0, self._num_tokens
                continue
            self._runs[period - 1] += 1
        return any(
            run >= self._min_numbers and self._num_tokens - begun >= self._min_tokens
            for run, begun in zip(self._runs, self._begun, strict=True)
        )

    def _counts_on(self, period: int) -> bool:
        units = self._units
        if len(units) <= 2 * period:
            return False
        gap, value = units[-1]
        gap_before, before = units[-1 - period]
        return gap == gap_before and value - before == before - units[-1 - 2 * period][1]
