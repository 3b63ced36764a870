"""One simulated replica: what `runtime/scheduler` does, with measured times for the work.

Prompts and answers share the engine as in `runtime/shares`, requests are ordered as in
`runtime/prompts`, admitted as in `runtime/waiting`; pictures are found in a cache of encoded
images, starts of prompts in idle slots.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field
from math import ceil, inf

from qwink.lab.plan.times import ServiceTimes
from qwink.lab.plan.trace import Arrival

_CHUNK, _SHORTEST, _HURRIED_S = 256, 64, 0.2  # as runtime/prompts and runtime/waiting
_SPARE_SLOTS = 16  # as engine/onnx


@dataclass(frozen=True, slots=True)
class Room:
    """Limits of a replica."""

    max_running: int = 8
    max_waiting: int = 64
    image_tokens: int = 65_536
    """Visual tokens that the cache of encoded images holds."""
    tokens_per_step: float = 1.0
    """Above 1 where drafts are right."""
    own_cores: bool = False
    """Whether pictures are decoded on other processors than the engine's."""


@dataclass(slots=True, eq=False)
class Job:
    """A request on its way. Times are seconds since the start of the trace."""

    arrival: Arrival
    number: int
    replica: str = ""
    found: bool = False
    """Whether the replica had the picture, encoded or in a prompt."""
    first_s: float = inf
    end_s: float = inf
    refused: bool = False
    # Work that is left, and the rank that orders it.
    to_encode: int = field(default=0, repr=False)
    parts_left: int = field(default=0, repr=False)
    known: int = field(default=0, repr=False)
    arrived: int = field(default=0, repr=False)
    steps_left: int = field(default=0, repr=False)

    @property
    def rank(self) -> tuple[int, int]:
        left = self.arrival.prompt_tokens - self.known + self.to_encode
        return self.arrived + left, self.number


class Replica:
    """Call `add` when a request's picture is prepared, and `end` when the work under way ends.

    `until` is when it ends, None while nothing is under way.
    """

    def __init__(self, name: str, times: ServiceTimes, room: Room) -> None:
        self.name, self._times, self._room = name, times, room
        self.until: float | None = None
        self.busy_s = 0.0
        self.prepared_s = 0.0  # until when pictures are decoded
        self.num_jobs = 0  # admitted and not yet ended
        self._started: list[Job] = []
        self._waiting: list[tuple[tuple[int, int], Job]] = []
        self._answers: list[Job] = []
        self._work_done = 0
        self._ahead = 0.0
        self._tokens_per_s: float | None = None
        self._images: OrderedDict[str, int] = OrderedDict()
        self._image_tokens = 0
        self._slots: OrderedDict[str, tuple[str | None, int, int]] = OrderedDict()
        self._pending_s = 0.0  # processor time that others took from the engine
        # The work under way.
        self._began = 0.0
        self._count = 0  # equal pieces: steps, parts of the encoder, or one chunk
        self._piece_s = 0.0
        self._job: Job | None = None  # None: steps
        self._chunk = 0  # tokens; 0: the encoder

    def arrive(self, job: Job, now: float) -> float | None:
        """When the job's picture is prepared; None if there is no room for the job."""
        if self.num_jobs >= self._room.max_running + self._room.max_waiting:
            return None
        self.num_jobs += 1
        visual = job.arrival.visual_tokens
        spent = self._times.request + (self._times.prepare(visual) if visual else 0.0)
        self.prepared_s = max(now, self.prepared_s) + spent
        if not self._room.own_cores:
            self._pending_s += spent
            self.busy_s += spent
        return self.prepared_s

    def add(self, job: Job, now: float) -> None:
        """Take in a job whose picture is prepared; begin it if nothing is under way."""
        job.arrived = self._work_done
        job.known, held = self._known(job.arrival)
        picture = job.arrival.picture
        job.found = held or (picture is not None and picture in self._images)
        job.to_encode = 0 if job.found or not picture else job.arrival.visual_tokens
        heapq.heappush(self._waiting, (job.rank, job))
        if self.until is None:
            # Processor time of this job's picture is over: the engine was idle meanwhile.
            self._pending_s = 0.0
            self._begin(now)
        elif self._count > 1 and self._admissible():
            # The pieces under way end early, at the end of the one that runs.
            done = min(self._count, max(1, ceil((now - self._began) / self._piece_s)))
            self.busy_s -= (self._count - done) * self._piece_s
            self._count = done
            self.until = self._began + done * self._piece_s

    def end(self, now: float) -> list[Job]:
        """The work under way has ended. Begins the next, and returns the jobs that are finished."""
        finished: list[Job] = []
        if self._job is not None:
            finished = self._advance(self._job, now)
        else:
            self._ahead = max(self._ahead - self._count * self._piece_s, -self._piece_s)
            for job in self._answers:
                job.steps_left -= self._count
                if job.steps_left <= 0:
                    finished.append(job)
            if finished:
                self._answers = [job for job in self._answers if job.steps_left > 0]
        for job in finished:
            job.end_s = now
            self.num_jobs -= 1
            self._release(job.arrival)
        self._begin(now)
        return finished

    def _advance(self, job: Job, now: float) -> list[Job]:
        if self._answers:
            self._ahead += now - self._began
        if not self._chunk:
            job.parts_left -= self._count
            if not job.parts_left:
                self._work_done += job.to_encode
                job.to_encode = 0
                self._remember(job.arrival)
            return []
        job.known += self._chunk
        self._work_done += self._chunk
        self._tokens_per_s = self._chunk / max(now - self._began, 1e-9)
        if job.known < job.arrival.prompt_tokens:
            return []
        self._started.remove(job)
        job.first_s = now
        left = job.arrival.answer_tokens - 1
        if left < 1:
            return [job]
        job.steps_left = max(1, round(left / self._room.tokens_per_step))
        self._answers.append(job)
        return []

    def _begin(self, now: float) -> None:
        """Choose the next work."""
        self._job, self._chunk = None, 0
        self._began, answering = now, bool(self._answers)
        if not answering:
            self._ahead = 0.0
        job = self._next_job() if not answering or self._ahead < 0 else None
        if job is not None:
            self._work_on(job, hurried=answering)
        elif answering:
            self._piece_s = self._times.step(len(self._answers))
            self._count = min(job.steps_left for job in self._answers)
            if self._admissible():  # until it is the turn of prompts
                self._count = min(self._count, int(max(self._ahead, 0.0) / self._piece_s) + 1)
        else:
            self.until = None
            return
        if self._pending_s:  # pictures take processor time from the next piece
            self.busy_s -= self._pending_s
            self._piece_s, self._count = self._piece_s + self._pending_s, 1
            self._pending_s = 0.0
        spent = self._count * self._piece_s
        self.until = now + spent
        self.busy_s += spent

    def _work_on(self, job: Job, *, hurried: bool) -> None:
        """Begin parts of the encoder, one beside answers, or a chunk of the prompt."""
        self._job, self._count = job, 1
        times = self._times
        if job.to_encode:
            job.parts_left = job.parts_left or times.encode_parts
            self._piece_s = times.encode(job.to_encode) / times.encode_parts
            self._count = 1 if hurried else job.parts_left
            return
        most = _CHUNK
        if hurried and self._tokens_per_s is not None:
            fitting = int(_HURRIED_S * self._tokens_per_s) // _SHORTEST * _SHORTEST
            most = min(_CHUNK, max(_SHORTEST, fitting))
        self._chunk = min(most, job.arrival.prompt_tokens - job.known)
        self._piece_s = times.prefill_from(job.known, self._chunk)

    def _free(self) -> int:
        return self._room.max_running - len(self._answers) - len(self._started)

    def _admissible(self) -> bool:
        """Whether there is work on prompts that could run."""
        return bool(self._started) or (bool(self._waiting) and self._free() > 0)

    def _next_job(self) -> Job | None:
        first = min(self._started, key=lambda job: job.rank, default=None)
        if self._waiting and self._free() > 0:
            rank, job = self._waiting[0]
            if first is None or rank < first.rank:
                heapq.heappop(self._waiting)
                # The picture may have come into the cache since the job arrived.
                job.known, held = self._known(job.arrival)
                picture = job.arrival.picture
                if held or (picture is not None and picture in self._images):
                    job.found, job.to_encode = True, 0
                if picture is not None and picture in self._images:
                    self._images.move_to_end(picture)
                self._started.append(job)
                return job
        return first

    def _known(self, arrival: Arrival) -> tuple[int, bool]:
        """Tokens of the prompt that a slot holds, and whether the picture is among them."""
        most = arrival.prompt_tokens - 1
        held = self._slots.get(arrival.conversation)
        if held is not None and held[0] == arrival.picture:
            return min(held[1], most), True
        if arrival.picture is not None:
            for picture, _, visual in self._slots.values():
                if picture == arrival.picture:
                    return min(visual, most), True
        return 0, False

    def _release(self, arrival: Arrival) -> None:
        """The prompt stays in its slot, as long as there are slots."""
        name = arrival.conversation or f"alone {id(arrival)}"
        self._slots[name] = (arrival.picture, arrival.prompt_tokens, arrival.visual_tokens)
        self._slots.move_to_end(name)
        if len(self._slots) > self._room.max_running + _SPARE_SLOTS:
            self._slots.popitem(last=False)

    def _remember(self, arrival: Arrival) -> None:
        if arrival.picture is None or arrival.picture in self._images:
            return
        self._images[arrival.picture] = arrival.visual_tokens
        self._image_tokens += arrival.visual_tokens
        while self._image_tokens > self._room.image_tokens:
            self._image_tokens -= self._images.popitem(last=False)[1]
