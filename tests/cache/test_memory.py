"""The bounded cache, compared with a simple model of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from qwink.cache.memory import MemoryCache


@dataclass(frozen=True)
class Value:
    nbytes: int
    number: int


class Model:
    """A list of pairs, least recently used first."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.pairs: list[tuple[str, Value]] = []

    def get(self, key: str) -> Value | None:
        for pair in self.pairs:
            if pair[0] == key:
                self.pairs.remove(pair)
                self.pairs.append(pair)
                return pair[1]
        return None

    def put(self, key: str, value: Value) -> None:
        self.pairs = [pair for pair in self.pairs if pair[0] != key]
        if value.nbytes <= self.max_bytes:
            self.pairs.append((key, value))
        while sum(value.nbytes for _, value in self.pairs) > self.max_bytes:
            self.pairs.pop(0)


keys = st.sampled_from("abcdef")
steps = st.lists(
    st.one_of(st.tuples(st.just("get"), keys), st.tuples(st.integers(0, 12), keys)), max_size=40
)


@given(max_bytes=st.integers(0, 30), steps=steps)
def test_equals_the_model(max_bytes: int, steps: list[tuple[int | str, str]]) -> None:
    cache: MemoryCache[Value] = MemoryCache(max_bytes)
    model = Model(max_bytes)
    for number, (step, key) in enumerate(steps):
        if isinstance(step, str):
            assert cache.get(key) == model.get(key)
        else:
            cache.put(key, Value(step, number))
            model.put(key, Value(step, number))
        assert len(cache) == len(model.pairs)
        assert cache.num_bytes == sum(value.nbytes for _, value in model.pairs) <= max_bytes
    # In the model's order, so that a look-up does not change the order of those that follow.
    for key, value in list(model.pairs):
        assert cache.get(key) == value


def test_evictions_are_counted() -> None:
    cache: MemoryCache[Value] = MemoryCache(10)
    for number, key in enumerate("abc"):
        cache.put(key, Value(5, number))
    assert cache.evictions == 1
    cache.put("c", Value(5, 3))  # replaced, not evicted
    cache.put("d", Value(11, 4))  # never kept
    assert cache.evictions == 1


def test_bound_holds_between_threads() -> None:
    cache: MemoryCache[Value] = MemoryCache(50)

    def work(start: int) -> bool:
        for number in range(start, start + 500):
            cache.put(str(number % 17), Value(number % 13, number))
            cache.get(str(number % 5))
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    values = [cache.get(str(key)) for key in range(17)]
    assert cache.num_bytes == sum(value.nbytes for value in values if value) <= 50
