"""Token sequences, indexed so that earlier places of the same last tokens are found quickly.

As in LZ77 (Ziv and Lempel, 1977): a table of pairs of tokens leads to the newest place of a pair,
and a chain from each place to the one before.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

_BREAK = -1  # between passages; no token
_PAIR_BYTES = 160  # of a dictionary's entry with its key and value
_TOKEN_BYTES = 8


class Ngrams:
    """Passages of token ids. Negative ids below -1 may be used as marks that no model generates."""

    def __init__(self) -> None:
        self._tokens = array("i")
        self._before = array("i")  # the place of the same pair before each place; -1: none
        self._newest: dict[tuple[int, int], int] = {}  # pair → the place behind its second token

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def num_bytes(self) -> int:
        """Memory, estimated."""
        return _TOKEN_BYTES * len(self._tokens) + _PAIR_BYTES * len(self._newest)

    def add(self, passage: Iterable[int]) -> None:
        """Add a passage; no match goes across its start."""
        if self._tokens:
            self.extend((_BREAK,))
        self.extend(passage)

    def extend(self, ids: Iterable[int]) -> None:
        """Continue the last passage. A pair is found once a token has followed it."""
        tokens, before, newest = self._tokens, self._before, self._newest
        for token in ids:
            place = len(tokens)
            tokens.append(token)
            if place < 2 or _BREAK in (tokens[place - 2], tokens[place - 1], token):
                before.append(-1)
                continue
            pair = tokens[place - 2], tokens[place - 1]
            before.append(newest.get(pair, -1))
            newest[pair] = place

    def matches(self, context: Sequence[int], most: int, longest: int) -> list[tuple[int, int]]:
        """Up to `most` newest places whose tokens before are the last two or more of `context`.

        Gives (length of the match, place): length is `longest` at most, and the token at the
        place is the one that followed.
        """
        if len(context) < 2:
            return []
        tokens, before = self._tokens, self._before
        place = self._newest.get((context[-2], context[-1]), -1)
        found: list[tuple[int, int]] = []
        longest = min(longest, len(context))
        while place >= 0 and len(found) < most:
            length = 2
            while (
                length < longest
                and place > length
                and tokens[place - length - 1] == context[-length - 1]
            ):
                length += 1
            found.append((length, place))
            place = before[place]
        return found

    def following(self, place: int, most: int) -> Sequence[int]:
        """Up to `most` tokens from `place` to the end of its passage."""
        ids = self._tokens[place : place + most]
        return ids[: ids.index(_BREAK)] if _BREAK in ids else ids

    def newest(self, most: int) -> Ngrams:
        """A copy of the newest passages, of `most` tokens together, and one passage at least."""
        passages, taken, stop = [], 0, len(self._tokens)
        while stop > 0 and taken < most:
            start = stop
            while start > 0 and self._tokens[start - 1] != _BREAK:
                start -= 1
            passages.append(self._tokens[start:stop])
            taken, stop = taken + stop - start, start - 1
        copy = Ngrams()
        for passage in reversed(passages):
            copy.add(passage)
        return copy
