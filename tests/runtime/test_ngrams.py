"""Places of the same last tokens, compared with a search of everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qwink.runtime.ngrams import Ngrams

passages_of = st.lists(st.lists(st.integers(0, 3), max_size=20), max_size=5)


def _search(passages: list[list[int]], context: list[int], longest: int) -> list[tuple[int, int]]:
    """Lengths and places, the newest first. Passages lie one behind the other, with a gap."""
    found, start = [], 0
    for index, passage in enumerate(passages):
        start += bool(index)
        for at in range(2, len(passage)):
            length = 0
            while (
                length < min(at, len(context), longest)
                and passage[at - length - 1] == context[-length - 1]
            ):
                length += 1
            if length >= 2:
                found.append((length, start + at))
        start += len(passage)
    return found[::-1]


@given(passages_of, st.lists(st.integers(0, 3), max_size=8), st.integers(2, 6))
def test_matches(passages: list[list[int]], context: list[int], longest: int) -> None:
    passages = [passage for passage in passages if passage]
    ngrams = Ngrams()
    for passage in passages:
        ngrams.add(passage)
    assert ngrams.matches(context, 1000, longest) == _search(passages, context, longest)
    assert ngrams.matches(context, 2, longest) == _search(passages, context, longest)[:2]


def test_what_follows_stays_within_its_passage() -> None:
    ngrams = Ngrams()
    ngrams.add([1, 2, 3, 4])
    ngrams.add([1, 2, 5, 6, 7])
    assert [place for _, place in ngrams.matches([1, 2], 9, 9)] == [7, 2]
    assert list(ngrams.following(2, 9)) == [3, 4]
    assert list(ngrams.following(7, 2)) == [5, 6]
    ngrams.extend([1, 2])
    assert len(ngrams.matches([9, 1, 2], 9, 9)) == 2  # not yet the last: nothing follows it
    ngrams.extend([8])
    assert ngrams.matches([9, 1, 2], 1, 9) == [(2, 12)]


@given(passages_of, st.integers(1, 40))
def test_the_newest(passages: list[list[int]], most: int) -> None:
    passages = [passage for passage in passages if passage]
    ngrams = Ngrams()
    for passage in passages:
        ngrams.add(passage)
    kept = ngrams.newest(most)
    expected = Ngrams()
    taken = 0
    for passage in reversed(passages):
        if taken >= most:
            break
        taken += len(passage)
    count = 0
    while count < len(passages) and sum(map(len, passages[count:])) > taken:
        count += 1
    for passage in passages[count:]:
        expected.add(passage)
    assert list(kept.following(0, 1000)) == list(expected.following(0, 1000))
    assert len(kept) == len(expected)
    assert kept.num_bytes == expected.num_bytes
