"""Replays a trace against replicas, event by event, and searches for how many are needed."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qwink.errors import OptionError
from qwink.lab.plan.replica import Job, Replica, Room
from qwink.lab.plan.routes import Routes
from qwink.lab.plan.times import ServiceTimes
from qwink.lab.plan.trace import Arrival

Routing = Literal["picture", "load"]
ROUTINGS: tuple[Routing, ...] = ("picture", "load")
MOST_REPLICAS = 1000
_MOST_STARTS = 8


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds; None where no request was answered."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """What so many replicas do with the trace."""

    replicas: int
    routing: Routing
    num_requests: int
    num_refused: int
    """Requests that found a full queue (status 429)."""
    first_token_ms: Percentiles
    total_ms: Percentiles
    utilisation: float
    """Share of the replicas' time, from the first arrival to the last answer."""
    found_share: float | None
    """Of the requests about a picture that was shown before, those whose replica had it."""
    answers_per_hour: float


def simulate(
    arrivals: Sequence[Arrival],
    times: ServiceTimes,
    replicas: int,
    routing: Routing = "picture",
    room: Room | None = None,
) -> Prediction:
    """The prediction for a number of replicas. Raises OptionError for a number out of range."""
    jobs, machines = replay(arrivals, times, replicas, routing, room or Room())
    return summarise(jobs, machines, routing)


def replay(
    arrivals: Sequence[Arrival],
    times: ServiceTimes,
    replicas: int,
    routing: Routing,
    room: Room,
) -> tuple[list[Job], list[Replica]]:
    """All jobs with their times, and the replicas as they are at the end."""
    if not 1 <= replicas <= MOST_REPLICAS:
        raise OptionError(f"{replicas} replicas; simulate 1 to {MOST_REPLICAS}")
    names = [f"replica {number}" for number in range(replicas)]
    machines = {name: Replica(name, times, room) for name in names}
    router = Routes(names)
    jobs = [Job(arrival, number) for number, arrival in enumerate(arrivals)]
    # (time, number of the event, job that is prepared or None, replica)
    events: list[tuple[float, int, Job | None, Replica]] = []
    counter = 0

    def schedule(at: float, job: Job | None, machine: Replica) -> None:
        nonlocal counter
        counter += 1
        heapq.heappush(events, (at, counter, job, machine))

    def run_until(limit: float) -> None:
        while events and events[0][0] <= limit:
            now, _, job, machine = heapq.heappop(events)
            before = machine.until
            if job is not None:
                machine.add(job, now)
                if machine.until is not None and machine.until != before:
                    schedule(machine.until, None, machine)
            elif before == now:  # otherwise the work was cut short, and its end has come earlier
                router.ended(machine.name, len(machine.end(now)))
                if machine.until is not None:
                    schedule(machine.until, None, machine)

    for job in jobs:
        arrival = job.arrival
        run_until(arrival.at_s)
        picture, starts = (
            (arrival.picture, _starts(arrival)) if routing == "picture" else (None, ())
        )
        name = router.choose(picture, starts, router.loads)
        machine = machines[name]
        job.replica = name
        ready = machine.arrive(job, arrival.at_s)
        if ready is None:
            job.refused = True
        else:
            router.started(name)
            schedule(ready, job, machine)
    run_until(float("inf"))
    return jobs, list(machines.values())


def _starts(arrival: Arrival) -> tuple[str, ...]:
    """The starts of the conversation, from the longest."""
    if not arrival.conversation:
        return ()
    least = max(0, arrival.turn - _MOST_STARTS)
    return tuple(f"{arrival.conversation}:{turn}" for turn in range(arrival.turn, least, -1))


def summarise(jobs: Sequence[Job], machines: Sequence[Replica], routing: Routing) -> Prediction:
    """Figures of all jobs of a run."""
    answered = [job for job in jobs if not job.refused]
    first = [(job.first_s - job.arrival.at_s) * 1e3 for job in answered]
    total = [(job.end_s - job.arrival.at_s) * 1e3 for job in answered]
    began = jobs[0].arrival.at_s if jobs else 0.0
    seconds = max((job.end_s for job in answered), default=began) - began
    shown: set[str] = set()
    again = found = 0
    for job in jobs:
        picture = job.arrival.picture
        if picture is None or job.refused:
            continue
        if picture in shown:
            again += 1
            found += job.found
        shown.add(picture)
    busy = sum(machine.busy_s for machine in machines)
    return Prediction(
        len(machines),
        routing,
        len(jobs),
        len(jobs) - len(answered),
        _percentiles(first),
        _percentiles(total),
        round(busy / (seconds * len(machines)), 4) if seconds else 0.0,
        round(found / again, 4) if again else None,
        round(len(answered) / seconds * 3600, 1) if seconds else 0.0,
    )


def _percentiles(values: Sequence[float]) -> Percentiles:
    if not values:
        return Percentiles(None, None, None)
    p50, p95, p99 = (round(float(x), 3) for x in np.percentile(values, (50, 95, 99)))
    return Percentiles(p50, p95, p99)


def smallest(
    predict: Callable[[int], Prediction], target_p95_ms: float, most: int = MOST_REPLICAS
) -> Prediction | None:
    """The prediction with the fewest replicas that refuse nothing and meet the target for the first
    token; None if `most` do not. More replicas are taken to be never slower.
    """

    def meets(found: Prediction) -> bool:
        p95 = found.first_token_ms.p95
        return not found.num_refused and p95 is not None and p95 <= target_p95_ms

    high = 1
    best = predict(high)
    while not meets(best):
        if high == most:
            return None
        high = min(most, 2 * high)
        best = predict(high)
    low = high // 2  # does not meet it, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        found = predict(middle)
        if meets(found):
            high, best = middle, found
        else:
            low = middle
    return best
