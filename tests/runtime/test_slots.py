"""Which slot a prompt gets, and what of it is known there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from qwink.runtime.chunks import Chunks
from qwink.runtime.slots import MAX_LOSS, MIN_REUSE, Lease, Slots, common_start
from qwink.types import Grid, ImageSpan, Prompt

PAD = 9
ANYWHERE = Chunks(256, anywhere=True)


class Cache:
    """A KV cache that records which token each place holds."""

    bytes_per_token = 10

    def __init__(self, num_slots: int, *, grows: bool = True) -> None:
        self.num_slots, self.grows, self.capacity = num_slots, grows, 1000
        self.tokens: list[list[int]] = [[] for _ in range(num_slots)]
        self.num_copied = 0

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        assert len(self.tokens[source]) >= num_tokens
        self.tokens[target][:num_tokens] = self.tokens[source][:num_tokens]
        self.num_copied += num_tokens

    def read(self, slot: int, num_tokens: int) -> NDArray[np.float32]:
        return np.array(self.tokens[slot][:num_tokens], np.float32)

    def truncate(self, slot: int, num_tokens: int) -> None:
        del self.tokens[slot][num_tokens:]


def prompt(*tokens: int, images: tuple[ImageSpan, ...] = ()) -> Prompt:
    ids = np.array(tokens, np.int64)
    return Prompt(ids, images, np.zeros((3, len(ids)), np.int64), len(ids))


def span(start: int, key: str) -> ImageSpan:
    return ImageSpan(start, 2, Grid(1, 2, 4), key)


def run(cache: Cache, slots: Slots, wanted: Prompt, answer: int = 5) -> Lease:
    """Take a slot, check what is said to be there, compute the rest, answer."""
    lease = slots.acquire(wanted, len(wanted) + answer)
    assert lease is not None
    tokens = cache.tokens[lease.slot]
    assert tokens[: lease.num_reused] == wanted.ids[: lease.num_reused].tolist()
    del tokens[lease.num_reused :]
    tokens.extend(wanted.ids[lease.num_reused :].tolist())
    if lease.logits is None:
        slots.advance(lease, len(wanted), np.array([float(wanted.ids.sum())], np.float32))
    tokens.extend([-1] * answer)
    return lease


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8))
def test_common_start_of_text(one: list[int], other: list[int]) -> None:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    assert common_start(prompt(*one).ids, (), prompt(*other).ids, ()) == length


def test_another_picture_ends_what_is_shared() -> None:
    tokens = prompt(1, PAD, PAD, 2, 3).ids
    cat, dog = (span(1, "cat"),), (span(1, "dog"),)
    assert common_start(tokens, cat, tokens, cat) == 5
    assert common_start(tokens, cat, tokens, dog) == 1
    assert common_start(tokens, cat, tokens, ()) == 1


def test_a_prompt_that_continues_takes_the_slot_over() -> None:
    cache = Cache(4)
    slots = Slots(cache, 10_000, ANYWHERE)
    first = run(cache, slots, prompt(*range(20)))
    slots.release(first)
    assert cache.tokens[first.slot] == list(range(20))  # the answer's tokens are given back
    second = run(cache, slots, prompt(*range(20), 7, 7))
    assert (second.slot, second.num_reused, cache.num_copied) == (first.slot, 20, 0)
    assert (slots.hits, slots.misses) == (1, 1)


def test_the_same_prompt_needs_no_pass() -> None:
    cache = Cache(4)
    slots = Slots(cache, 10_000, ANYWHERE)
    first = run(cache, slots, prompt(*range(20)))
    slots.release(first)
    again = slots.acquire(prompt(*range(20)), 25)
    assert again is not None
    assert (again.slot, again.num_reused) == (first.slot, 20)
    assert again.logits is not None
    assert again.logits.tolist() == [sum(range(20))]
    shorter = slots.acquire(prompt(*range(15)), 25)  # all of it is there, but not its logits
    assert shorter is not None
    assert (shorter.num_reused, shorter.logits) == (14, None)


def test_a_prompt_in_use_is_copied() -> None:
    cache = Cache(4)
    slots = Slots(cache, 10_000, ANYWHERE)
    first = run(cache, slots, prompt(*range(20)))
    second = run(cache, slots, prompt(*range(12), 99))
    assert second.slot != first.slot
    assert (second.num_reused, cache.num_copied) == (12, 12)
    same = run(cache, slots, prompt(*range(20)))
    assert (same.num_reused, same.logits is not None) == (20, True)


def test_a_long_tail_is_not_given_up_for_a_short_start() -> None:
    cache = Cache(4)
    slots = Slots(cache, 100_000, ANYWHERE)
    long = prompt(*range(10), *range(100, 101 + MAX_LOSS))
    first = run(cache, slots, long)
    slots.release(first)
    second = run(cache, slots, prompt(*range(10), 7))
    assert second.slot != first.slot
    assert second.num_reused == 10
    slots.release(second)
    assert run(cache, slots, long).num_reused == len(long)


def test_starts_of_a_few_tokens_are_not_worth_it() -> None:
    cache = Cache(4)
    slots = Slots(cache, 10_000, ANYWHERE)
    slots.release(run(cache, slots, prompt(*range(MIN_REUSE - 1), 50, 51)))
    assert run(cache, slots, prompt(*range(MIN_REUSE - 1), 60, 61)).num_reused == 0


def test_the_least_recently_used_makes_room() -> None:
    cache = Cache(8)
    slots = Slots(cache, 75 * cache.bytes_per_token, ANYWHERE)  # of 20 + 5 tokens, or 3 x 20 kept
    starts = [0, 100, 200]
    for start in starts:
        slots.release(run(cache, slots, prompt(*range(start, start + 20))))
    assert (len(slots), slots.num_bytes) == (3, 600)
    slots.release(run(cache, slots, prompt(*range(20))))  # used again
    slots.release(run(cache, slots, prompt(*range(300, 320))))
    kept = [start for start in (*starts, 300) if _knows(slots, start)]
    assert kept == [0, 200, 300]
    assert slots.evictions == 1
    assert sum(map(len, cache.tokens)) == 60  # the others returned their memory


def _knows(slots: Slots, start: int) -> bool:
    return slots._find(prompt(*range(start, start + 20)))[0] is not None


def test_slots_and_memory_bound_what_runs() -> None:
    cache = Cache(2)
    slots = Slots(cache, 40 * cache.bytes_per_token, ANYWHERE)
    alone = slots.acquire(prompt(*range(20)), 100)  # alone, it may have more than all
    assert alone is not None
    assert slots.acquire(prompt(50), 2) is None
    slots.release(alone)
    first, second = slots.acquire(prompt(1), 20), slots.acquire(prompt(2), 20)
    assert first is not None
    assert second is not None
    assert slots.acquire(prompt(3), 1) is None
    fixed = Slots(Cache(3, grows=False), 0, ANYWHERE)  # a device's memory is taken at once
    assert all(fixed.acquire(prompt(n), 50) is not None for n in range(3))


def test_nothing_is_kept_where_it_is_not_wanted_or_not_valid() -> None:
    cache = Cache(2)
    slots = Slots(cache, 10_000, ANYWHERE, keep=False)
    slots.release(run(cache, slots, prompt(*range(20))))
    assert (len(slots), cache.tokens) == (0, [[], []])
    slots = Slots(cache, 10_000, ANYWHERE)
    slots.release(run(cache, slots, prompt(*range(20))), valid=False)
    assert (len(slots), cache.tokens) == (0, [[], []])


@pytest.mark.parametrize("num_slots", [1, 3])
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_reused_is_what_would_be_computed(num_slots: int, data: st.DataObject) -> None:
    """Random prompts of few kinds of token, started and ended in any order."""
    cache = Cache(num_slots)
    slots = Slots(cache, 60 * cache.bytes_per_token, ANYWHERE)
    running: list[Lease] = []
    for _ in range(12):
        ends = bool(data.draw(st.booleans()))
        if running and ends:
            slots.release(running.pop(0), valid=bool(data.draw(st.integers(0, 1))))
            continue
        if len(running) == num_slots:
            continue
        start: list[int] = data.draw(st.sampled_from([[1] * 12, [1] * 10 + [2] * 8, []]))
        tail: list[int] = data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=12))
        wanted = prompt(*start, *tail)
        if running and slots.reserved_bytes + (len(wanted) + 3) * 10 > slots.max_bytes:
            assert slots.acquire(wanted, len(wanted) + 3) is None
            continue
        lease = run(cache, slots, wanted, 3)  # checks the tokens
        assert lease.slot not in [other.slot for other in running]
        running.append(lease)
