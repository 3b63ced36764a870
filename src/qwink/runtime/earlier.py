"""Earlier answers, which later ones to the same question may repeat in part."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from qwink.runtime.chances import Chances
from qwink.runtime.ngrams import Ngrams

START = -2  # stands before an answer's first token
MAX_BYTES = 16 << 20
_MAX_TOKENS = 16_384  # of the answers to one question
_OVERHEAD = 8192  # bytes of a question besides its answers' tokens, estimated


class Answered:
    """The answers to one question, and how often drafts of its answers are right."""

    def __init__(self) -> None:
        self.ngrams = Ngrams()
        self.chances = Chances()

    @property
    def num_bytes(self) -> int:
        return self.ngrams.num_bytes + _OVERHEAD

    def add(self, ids: Sequence[int]) -> None:
        """Keep an answer; the oldest half is forgotten when there are many."""
        self.ngrams.add((START, *ids[:_MAX_TOKENS]))
        if len(self.ngrams) > _MAX_TOKENS:
            self.ngrams = self.ngrams.newest(_MAX_TOKENS // 2)


class EarlierAnswers:
    """Answers by scope and question, the least recently used forgotten. For one thread.

    A scope sees nothing of another one: whether a draft is right can be told by its time.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.num_bytes = 0
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[str, bytes], Answered] = OrderedDict()

    def find(self, scope: str, question: bytes) -> Answered:
        """The answers to a question so far; none for a new one."""
        key = scope, question
        if key not in self._kept:
            self._kept[key] = Answered()
            self.num_bytes += self._kept[key].num_bytes
            self._make_room()
        found = self._kept.get(key)
        if found is None:  # one alone is more than may be kept
            return Answered()
        self._kept.move_to_end(key)
        return found

    def add(self, scope: str, question: bytes, ids: Sequence[int]) -> None:
        """Keep an answer."""
        answered = self.find(scope, question)
        before = answered.num_bytes
        answered.add(ids)
        if (scope, question) in self._kept:
            self.num_bytes += answered.num_bytes - before
        self._make_room()

    def _make_room(self) -> None:
        while self.num_bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.num_bytes -= oldest.num_bytes
