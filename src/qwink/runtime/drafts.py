"""Drafts: tokens that may come next, taken from what was read or written before.

They come from the prompt's text, the answer so far, the client's prediction, and earlier answers
to the same question. Places there whose last tokens equal the answer's vote on each token. Where
the answer has left a place, such as in the middle of a record's field, the place is found again
behind the next token that both have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from qwink.runtime.chances import Chances, Signs
from qwink.runtime.earlier import START, Answered, EarlierAnswers
from qwink.runtime.ngrams import Ngrams
from qwink.runtime.sequence import Draft
from qwink.types import Prompt

_LONGEST = 16  # tokens of a match
_PLACES = 16  # of each source, the newest
_ANCHORS = 8  # places that the answer has followed
_STRONG = 4  # a match of so many tokens makes an anchor
_WINDOW = 48  # tokens within which an anchor is found again
_MAX_PROMPT = 8192  # tokens of the prompt's text, the last ones
_MOST_VALUED = 8  # a longer match has no more weight

_UNLIKELY = 0.05  # no draft follows one that is reached with a chance below this

Place = tuple[int, Ngrams, int]  # length of the match (0: found again), where, index there
Guess = tuple[int, Signs, float]  # token, what is known about it, its chance


class Drafter:
    """Drafts for one answer. It is used by one thread at a time."""

    def __init__(
        self,
        prompt: Prompt,
        is_digits: Callable[[int], bool],
        earlier: EarlierAnswers,
        scope: str = "",
        question: bytes | None = None,
        prediction: Sequence[int] = (),
    ) -> None:
        """`question`: what earlier answers must have in common; by default the prompt's text.

        `prediction`: tokens that the client expects.
        """
        self._is_digits, self._earlier, self._scope = is_digits, earlier, scope
        texts = _texts(prompt)
        self._question = _digest(texts) if question is None else question
        self._text = Ngrams()  # of prompt and answer
        for text in texts:
            self._text.add(text)
        self._context = list(texts[-1][-_LONGEST:]) if texts else []
        self._prediction = Ngrams()
        if prediction:
            self._prediction.add((START, *prediction))
        self._answered: Answered | None = None
        self._num_seen = 0  # generated tokens that are in `_text`
        self._draft: list[Guess] = []  # of the tokens after the first `_num_seen`
        self._places: list[Place] = []
        self._anchors: list[tuple[Ngrams, int]] = []

    def propose(self, generated: Sequence[int], most: int) -> Draft:
        """Up to `most` tokens that may follow, with the chance of each if those before are right.

        What was proposed before is compared with what came.
        """
        if len(generated) < self._num_seen:  # tokens that were certain, and not run together
            return Draft()
        if self._answered is None:
            self._answered = self._earlier.find(self._scope, self._question)
        chances = self._answered.chances
        self._follow(generated, chances)
        self._places = self._matches(generated)
        draft = self._vote(self._places, most, chances)
        again = self._found_again(generated)
        if again:
            draft = max(draft, self._vote(again, most, chances), key=_expected)
            self._places += again
        self._draft = draft
        return Draft(tuple(token for token, _, _ in draft), tuple(chance for _, _, chance in draft))

    def finish(self, generated: Sequence[int]) -> None:
        """The answer is whole."""
        if self._answered is not None:
            self._follow(generated, self._answered.chances)
        self._earlier.add(self._scope, self._question, generated)

    def _follow(self, generated: Sequence[int], chances: Chances) -> None:
        """Take up the tokens since the last call."""
        came = generated[self._num_seen :]
        for (token, signs, _), real in zip(self._draft, came, strict=False):
            chances.learn(signs, right=token == real)
            if token != real:
                break
        followed = []
        for length, source, place in self._places:
            equal = _num_equal(source.following(place, len(came)), came)
            if length + equal >= _STRONG and (equal or length):
                followed.append((length + equal, source, place + equal))
        if followed:
            followed.sort(key=lambda one: -one[0])
            self._anchors = [(source, place) for _, source, place in followed[:_ANCHORS]]
        self._text.extend(came)
        self._num_seen = len(generated)
        self._draft, self._places = [], []

    def _matches(self, generated: Sequence[int]) -> list[Place]:
        """Places after the same last tokens."""
        assert self._answered is not None
        last = list(generated[-_LONGEST:])
        begun = [START, *last] if len(generated) < _LONGEST else last
        mine = [*self._context, *last][-_LONGEST:]
        return [
            (length, source, place)
            for source, context in (
                (self._prediction, begun),
                (self._answered.ngrams, begun),
                (self._text, mine),
            )
            for length, place in source.matches(context, _PLACES, _LONGEST)
        ]

    def _found_again(self, generated: Sequence[int]) -> list[Place]:
        """Places soon after the anchors that follow the answer's last token."""
        found: list[Place] = []
        for source, place in self._anchors:
            ahead = source.following(place, _WINDOW)
            for index, token in enumerate(ahead):
                if token == generated[-1]:
                    found.append((0, source, place + index + 1))
                    break
        return found

    def _vote(self, places: Sequence[Place], most: int, chances: Chances) -> list[Guess]:
        """The tokens that most places propose; longer matches have more weight."""
        paths = [
            (length, 4.0 ** min(length, _MOST_VALUED), source.following(place, most))
            for length, source, place in places
        ]
        draft: list[Guess] = []
        reached = 1.0
        while len(draft) < most and reached > _UNLIKELY:
            depth, votes = len(draft), dict[int, float]()
            for _, weight, ids in paths:
                if len(ids) > depth:
                    votes[ids[depth]] = votes.get(ids[depth], 0.0) + weight
            if not votes:
                break
            token = max(votes, key=votes.__getitem__)
            share = votes[token] / sum(votes.values())
            paths = [path for path in paths if len(path[2]) > depth and path[2][depth] == token]
            length, digits = max(path[0] for path in paths), self._is_digits(token)
            if length:
                signs = Signs(length + depth, len(paths), share, digits)
            else:
                signs = Signs(0, len(paths), share, digits, depth)
            chance = chances.of(signs)
            draft.append((token, signs, chance))
            reached *= chance
        return draft


def _expected(draft: Sequence[Guess]) -> float:
    """How many of the tokens will be right."""
    expected, reached = 0.0, 1.0
    for _, _, chance in draft:
        reached *= chance
        expected += reached
    return expected


def _num_equal(one: Sequence[int], two: Sequence[int]) -> int:
    """How many tokens both begin with."""
    for index, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return index
    return min(len(one), len(two))


def _texts(prompt: Prompt) -> list[list[int]]:
    """The prompt's tokens before, between and behind its images; of a long prompt the last ones."""
    texts, start = [], 0
    for span in prompt.images:
        texts.append(prompt.ids[start : span.start].tolist())
        start = span.start + span.length
    texts.append(prompt.ids[start:].tolist())
    kept, room = [], _MAX_PROMPT
    for text in reversed(texts):
        if text and room > 0:
            kept.append(text[-room:])
            room -= len(text)
    return kept[::-1]


def _digest(texts: Sequence[Sequence[int]]) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(np.asarray([*text, -1], np.int64).tobytes())
    return digest.digest()[:16]
