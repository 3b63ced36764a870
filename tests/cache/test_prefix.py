"""The longest common start of prompts, with their pictures."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qwink.cache.prefix import PrefixCache, PrefixEntry, common_start
from qwink.types import Grid, ImageSpan

PAD = 9


def ids(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def span(start: int, key: str) -> ImageSpan:
    return ImageSpan(start, 2, Grid(1, 2, 4), key)


def entry(tokens: list[int], images: tuple[ImageSpan, ...] = ()) -> PrefixEntry:
    return PrefixEntry(ids(*tokens), images, np.zeros((1, 2, 1, len(tokens), 4), np.float32))


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8))
def test_common_start_of_text(one: list[int], other: list[int]) -> None:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    assert common_start(ids(*one), (), ids(*other), ()) == length


def test_another_picture_ends_what_is_shared() -> None:
    tokens = ids(1, PAD, PAD, 2, 3)
    cat, dog = (span(1, "cat"),), (span(1, "dog"),)
    assert common_start(tokens, cat, tokens, cat) == 5
    assert common_start(tokens, cat, tokens, dog) == 1
    assert common_start(tokens, cat, tokens, ()) == 1


def test_the_longest_entry_is_found() -> None:
    cache = PrefixCache(1 << 20)
    cache.put(entry([1, 2, 5]))
    cache.put(entry([1, 2, 3, 4]))
    found, length = cache.find(ids(1, 2, 3, 7), ())
    assert found is not None
    assert (found.ids.tolist(), length) == ([1, 2, 3, 4], 3)
    assert cache.find(ids(7), ()) == (None, 0)
    assert (cache.hits, cache.misses) == (1, 1)


def test_an_entry_replaces_what_it_continues() -> None:
    cache = PrefixCache(1 << 20)
    cache.put(entry([1, 2]))
    cache.put(entry([1, 2, 3]))
    cache.put(entry([1, 2]))  # known already, and more
    assert len(cache) == 1
    assert cache.num_bytes == entry([1, 2, 3]).nbytes


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(2 * entry([1, 2]).nbytes)
    cache.put(entry([1, 2]))
    cache.put(entry([3, 4]))
    cache.find(ids(1, 2), ())
    cache.put(entry([5, 6]))
    assert cache.find(ids(3, 4), ())[1] == 0
    assert cache.find(ids(1, 2), ())[1] == 2
    assert cache.evictions == 1


def test_an_entry_larger_than_the_cache_is_not_kept() -> None:
    cache = PrefixCache(10)
    cache.put(entry([1, 2, 3]))
    assert (len(cache), cache.num_bytes) == (0, 0)
