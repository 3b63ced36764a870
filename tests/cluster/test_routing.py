"""Properties of the choice of a replica."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwink.cluster.ring import Ring
from qwink.cluster.routing import Places, Router

PICTURES = [f"picture-{number}" for number in range(2000)]
COUNTS = st.integers(1, 8)


def names(count: int) -> list[str]:
    return [f"replica-{number}" for number in range(count)]


def owner(ring: Ring, key: str) -> str:
    return next(ring.walk(key))


@given(COUNTS)
@settings(max_examples=8, deadline=None)
def test_a_walk_visits_all_names_once(count: int) -> None:
    ring = Ring(names(count))
    for key in PICTURES[:20]:
        assert sorted(ring.walk(key)) == names(count)


@given(st.integers(2, 8), st.data())
@settings(max_examples=10, deadline=None)
def test_only_the_keys_of_a_removed_name_move(count: int, data: st.DataObject) -> None:
    """And a name that is added again takes back exactly those."""
    gone = data.draw(st.sampled_from(names(count)))
    ring = Ring(names(count))
    before = {key: owner(ring, key) for key in PICTURES}
    ring.remove(gone)
    after = {key: owner(ring, key) for key in PICTURES}
    moved = {key for key in PICTURES if before[key] != after[key]}
    assert moved == {key for key in PICTURES if before[key] == gone}
    assert 0.5 / count < len(moved) / len(PICTURES) < 1.6 / count
    ring.add(gone)
    assert {key: owner(ring, key) for key in PICTURES} == before


@given(
    COUNTS,
    st.floats(1, 3),
    st.integers(0, 4),
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=60
    ),
)
@settings(max_examples=60, deadline=None)
def test_no_replica_gets_more_than_its_share(
    count: int, factor: float, slots: int, requests: list[tuple[int, int, bool]]
) -> None:
    """Whatever the pictures are, with requests that come and go."""
    router, loads = Router(names(count), factor, slots), Counter[str]()
    running: list[str] = []
    for picture, start, ends in requests:
        if ends and running:
            loads[running.pop(0)] -= 1
        chosen = router.choose(f"p{picture}" if picture else None, [f"s{start}"], loads)
        loads[chosen] += 1
        running.append(chosen)
        assert loads[chosen] <= max(slots, ceil(factor * len(running) / count))


@given(st.integers(2, 6), st.lists(st.sampled_from(PICTURES), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_routers_agree_about_pictures(count: int, pictures: list[str]) -> None:
    one, other = Router(names(count)), Router(names(count)[::-1])
    for picture in pictures:
        assert one.choose(picture, [], {}) == other.choose(picture, [], {})


@given(st.integers(2, 8))
@settings(max_examples=7, deadline=None)
def test_pictures_stay_where_they_are_when_a_replica_comes_or_goes(count: int) -> None:
    router = Router(names(count))
    before = {key: router.choose(key, [], {}) for key in PICTURES[:300]}
    router.add("new")
    assert {key: router.choose(key, [], {}) for key in before} == before
    router.remove("replica-0")
    after = {key: router.choose(key, [], {}) for key in before}
    assert {key for key in before if before[key] != after[key]} == {
        key for key in before if before[key] == "replica-0"
    }
    assert "replica-0" not in after.values()


def test_new_pictures_are_spread_and_known_ones_found_while_there_are_slots() -> None:
    router, loads = Router(names(2), slots=8), Counter[str]()
    for number in range(8):
        loads[router.choose(f"p{number}", [], loads)] += 1
    assert max(loads.values()) <= 5
    place = router.choose("p0", [], {})
    other = next(name for name in names(2) if name != place)
    assert router.choose("p0", [], {place: 7}) == place
    assert router.choose("p0", [], {place: 8}) == other


def test_a_picture_that_moved_is_found_where_it_moved_to() -> None:
    router = Router(names(3), slots=0)
    first = router.choose("p", [], {})
    second = router.choose("p", [], {first: 8})
    assert second != first
    third = router.choose("p", [], {first: 8, second: 8})
    assert third not in (first, second)
    # The first one has it still, and comes first when it has room.
    assert router.choose("p", [], {first: 1, second: 1, third: 1}) == first
    router.remove(first)
    assert router.choose("p", [], {}) in (second, third)


def test_a_conversation_stays_where_it_is_among_those_that_have_its_picture() -> None:
    router = Router(names(2), slots=0)
    first = router.choose("p", ["start"], {})
    second = router.choose("p", ["other"], {first: 5})
    assert second != first
    assert router.choose("p", ["other, longer", "other"], {}) == second
    assert router.choose("p", ["unknown"], {}) == first


def test_the_longest_known_start_decides_without_a_picture() -> None:
    router = Router(names(2), slots=0)
    first = router.choose(None, ["a"], {})
    second = router.choose(None, ["ab", "a"], {first: 3})  # the other one is full
    assert second != first
    assert router.choose(None, ["abc", "ab", "a"], {}) == second
    assert router.choose(None, ["abc", "ab", "a"], {second: 5}) == first
    assert router.choose(None, ["b"], {first: 1}) == second


def test_conversations_with_the_same_start_are_spread() -> None:
    router, loads = Router(names(2)), Counter[str]()
    for number in range(8):
        loads[router.choose(None, [f"own {number}", "system prompt"], loads)] += 1
    assert max(loads.values()) <= 5


def test_without_anything_known_the_least_loaded_one_gets_it_in_turns() -> None:
    router = Router(names(3))
    assert sorted(router.choose(None, [], {}) for _ in range(3)) == names(3)
    assert router.choose(None, [], {"replica-0": 1, "replica-2": 1}) == "replica-1"


def test_loads_of_others_do_not_count() -> None:
    router = Router(names(2))
    assert router.limit({"gone": 100}) == router.limit({}) == 1


def test_replicas_come_and_go() -> None:
    router = Router(["a", "a"])
    router.add("a")
    router.add("b")
    assert router.replicas == ("a", "b")
    router.remove("c")
    router.remove("a")
    router.remove("b")
    with pytest.raises(LookupError, match="no replica"):
        router.choose("p", [], {})


@pytest.mark.parametrize("factor", [0.99, float("nan"), float("inf")])
def test_a_factor_that_leaves_no_room_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="load_factor"):
        Router(["a"], factor)


def test_the_table_keeps_what_was_used_last() -> None:
    places = Places(2)
    places.put("a", "x")
    places.put("b", "x")
    places.put("a", "y")
    places.put("c", "x")
    assert [places.get(key) for key in "abc"] == [("x", "y"), (), ("x",)]
    places.forget("x")
    assert len(places) == 1
    assert places.get("a") == ("y",)
