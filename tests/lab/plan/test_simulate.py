"""Simulated replicas against sums done by hand, and against the server's router."""

from __future__ import annotations

import random

import pytest

from qwink.cluster.routing import Router
from qwink.errors import OptionError
from qwink.lab.plan.replica import Room
from qwink.lab.plan.routes import Routes
from qwink.lab.plan.simulate import Prediction, replay, simulate, smallest
from qwink.lab.plan.times import Curve, ServiceTimes
from qwink.lab.plan.trace import Arrival, Mix, generate

# A token to encode takes 10 ms, to prefill 1 ms, a step 100 ms for any number of answers.
TIMES = ServiceTimes(
    "model",
    1,
    prepare=Curve(((0.0, 0.05),)),
    encode=Curve(((0.0, 0.0), (1.0, 0.01))),
    prefill=Curve(((0.0, 0.0), (1.0, 0.001))),
    step=Curve(((1.0, 0.1),)),
    request=0.0,
    encode_parts=4,
)
ROOM = Room()


def run(*arrivals: Arrival, room: Room = ROOM, replicas: int = 1) -> list[tuple[float, float]]:
    """When each request has its first token and its end."""
    jobs, _ = replay(arrivals, TIMES, replicas, "picture", room)
    return [(round(job.first_s, 6), round(job.end_s, 6)) for job in jobs]


def test_one_request() -> None:
    asked = Arrival(1.0, 30, 5, 20, "a")
    assert run(asked) == [(1.28, 1.68)]  # 1 + 0.05 + 0.2 + 0.03, then 4 steps


def test_a_second_question_finds_its_picture_and_its_prompt() -> None:
    first = Arrival(0.0, 30, 1, 20, "a", "talk")
    again = Arrival(10.0, 40, 1, 20, "a", "talk", 2)
    other = Arrival(20.0, 40, 1, 20, "a", "other talk")
    # The prompt of the conversation is known in whole, for another one its picture.
    assert run(first, again, other)[1:] == [(10.06, 10.06), (20.07, 20.07)]


def test_steps_are_shared() -> None:
    a, b = run(Arrival(0.0, 10, 11), Arrival(0.2, 10, 6))
    # The first token of b comes between two steps of a; then both take the same steps.
    assert a == (0.01, pytest.approx(0.01 + 10 * 0.1 + 0.01))
    assert b[0] == pytest.approx(0.22)
    assert b[1] == pytest.approx(0.22 + 5 * 0.1)


def test_answers_have_half_of_the_time_beside_an_encoding() -> None:
    # 4 parts of 0.1 s, each followed by a step of 0.1 s.
    answer, picture = run(Arrival(0.0, 10, 21), Arrival(1.0, 50, 1, 40, "a"))
    assert answer[1] == pytest.approx(0.01 + 2.0 + 0.4 + 0.05 + 0.05, abs=0.02)
    assert 1.8 < picture[0] < 2.1


def test_short_questions_overtake_long_ones() -> None:
    first, long, short = run(Arrival(0.0, 256, 1), Arrival(0.001, 2000, 1), Arrival(0.002, 10, 1))
    assert first[1] < short[1] < long[1]


def test_a_full_queue_refuses() -> None:
    room = Room(max_running=1, max_waiting=1)
    arrivals = [Arrival(0.0, 10, 100)] * 3
    jobs, _ = replay(arrivals, TIMES, 1, "load", room)
    assert [job.refused for job in jobs] == [False, False, True]


def test_work_is_conserved() -> None:
    """However it is shared, the engine works as long as the pieces take."""
    arrivals = generate(Mix(rate=0.5, count=400, second=0, seed=3))
    jobs, (machine,) = replay(arrivals, TIMES, 1, "load", Room(max_waiting=1000))
    assert all(job.first_s <= job.end_s < float("inf") for job in jobs)
    once = sum(0.05 + 0.01 * one.visual_tokens + 0.001 * one.prompt_tokens for one in arrivals)
    steps = sum(0.1 * (one.answer_tokens - 1) for one in arrivals)
    assert once < machine.busy_s < once + steps
    alone = simulate(arrivals, TIMES, 1000, "load")
    crowded = simulate(arrivals, TIMES, 1, "load", Room(max_waiting=1000))
    assert alone.total_ms.p95 is not None
    assert crowded.total_ms.p95 is not None
    assert alone.total_ms.p95 < crowded.total_ms.p95


def test_routing_by_picture_finds_more_pictures() -> None:
    arrivals = generate(Mix(rate=1.0, count=2000, second=0.5, seed=2))
    by_picture, by_load = (simulate(arrivals, TIMES, 8, way) for way in ("picture", "load"))
    assert by_picture.found_share is not None
    assert by_load.found_share is not None
    assert by_picture.found_share > 2 * by_load.found_share


def test_routes_choose_as_the_router_does() -> None:
    names = [f"r{number}" for number in range(7)]
    router, routes = Router(names), Routes(names)
    chance, running = random.Random(0), []
    for number in range(2000):
        picture = chance.choice([None, f"p{chance.randrange(50)}"])
        starts = [f"s{chance.randrange(50)}"] if chance.random() < 0.5 else []
        chosen = routes.choose(picture, starts, routes.loads)
        assert chosen == router.choose(picture, starts, dict(routes.loads)), number
        routes.started(chosen)
        running.append(chosen)
        while running and chance.random() < 0.5:
            routes.ended(running.pop(chance.randrange(len(running))))


def test_the_fewest_replicas() -> None:
    arrivals = generate(Mix(rate=2.0, count=300, second=0, seed=1))

    def predict(count: int) -> Prediction:
        return simulate(arrivals, TIMES, count, "load")

    best = smallest(predict, 6000)
    assert best is not None
    assert best.first_token_ms.p95 is not None
    assert best.first_token_ms.p95 <= 6000
    fewer = predict(best.replicas - 1)
    assert fewer.num_refused or (fewer.first_token_ms.p95 or 0) > 6000
    assert smallest(predict, 1, most=16) is None
    with pytest.raises(OptionError):
        predict(1001)
