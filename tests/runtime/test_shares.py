"""Whose turn it is, on a clock that the test moves; and the order of work on a recorded engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.cache.embeddings import EmbeddingCache, EncoderOutput
from qwink.runtime.messages import ImagePart
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.request import Request
from qwink.runtime.requests import Model
from qwink.runtime.scheduler import Scheduler
from qwink.runtime.shares import Shares
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import Message
from tests.runtime.test_scheduler import Inbox

STEP_S, PART_S, TOKEN_S = 0.05, 0.11, 0.002


@dataclass
class Clock:
    """Seconds, as far as the test has moved it."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def turn(shares: Shares, clock: Clock, seconds: float, *, answering: bool) -> str:
    """Let whoever's turn it is work for `seconds`."""
    if shares.prompts_turn(answering=answering):
        with shares.prompts():
            clock.now += seconds
        return "p"
    with shares.answers():
        clock.now += seconds
    return "a"


def test_long_work_of_prompts_is_made_up_for() -> None:
    clock = Clock()
    shares = Shares(clock)
    assert [turn(shares, clock, 1.0, answering=False) for _ in range(3)] == ["p"] * 3
    found = ""
    for _ in range(14):
        prompts = shares.prompts_turn(answering=True)
        found += turn(shares, clock, 0.375 if prompts else 0.125, answering=True)
    assert found == "apaaapaaapaaap"


def test_short_work_of_prompts_fills_their_share() -> None:
    clock = Clock()
    shares = Shares(clock)
    found = ""
    for _ in range(12):
        prompts = shares.prompts_turn(answering=True)
        found += turn(shares, clock, 0.125 if prompts else 0.5, answering=True)
    assert found == "appppappppap"


def test_time_that_was_not_used_is_not_kept() -> None:
    clock = Clock()
    shares = Shares(clock)
    for _ in range(100):  # nothing waits: the answers go on
        with shares.answers():
            clock.now += 1.0
    assert [turn(shares, clock, 1.0, answering=True) for _ in range(4)] == ["p", "a", "p", "a"]


@given(st.lists(st.tuples(st.floats(0.001, 3), st.floats(0.001, 3)), min_size=1, max_size=60))
def test_answers_have_at_least_half(works: list[tuple[float, float]]) -> None:
    clock = Clock()
    shares = Shares(clock)
    spent = {"p": 0.0, "a": 0.0}
    for prompt, step in works:
        prompts = shares.prompts_turn(answering=True)
        seconds = prompt if prompts else step
        spent[turn(shares, clock, seconds, answering=True)] += seconds
        longest = max(one for one, _ in works)
        assert spent["p"] <= spent["a"] + longest


@dataclass
class Recorder:
    """The engine, on a clock of its own: writes down what runs. It waits until it is let go."""

    engine: Any
    clock: Clock
    log: list[tuple[str, Any]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def encode_parts(self, images: Any) -> Iterator[Any]:
        for part in self.engine.encode_parts(images):
            self._note("part", images[0].key, PART_S)
            yield part

    def prefill(self, cache: Any, chunks: Any) -> Any:
        sizes = [len(chunk) for chunk in chunks]
        self._note("chunk", (chunks[0].prompt, sum(sizes)), TOKEN_S * sum(sizes))
        return self.engine.prefill(cache, chunks)

    def step(self, cache: Any, runs: Any) -> Any:
        self._note("step", len(runs), STEP_S)
        return self.engine.step(cache, runs)

    def _note(self, kind: str, what: Any, seconds: float) -> None:
        self.gate.wait()
        self.log.append((kind, what))
        self.clock.now += seconds


@dataclass
class Bench:
    """A scheduler on a recorded engine."""

    vlm: VLM
    engine: Recorder
    scheduler: Scheduler

    def prepare(self, text: str, max_tokens: int, *pictures: Path) -> Request:
        sampling = replace(self.vlm.sampling, max_tokens=max_tokens)
        message = Message("user", (*map(ImagePart, pictures), text))
        options = ImageOptions(min_pixels=4096, max_pixels=8192)
        return self.vlm.prepare([message], options, sampling)

    def submit(self, request: Request) -> Inbox:
        inbox = Inbox()
        self.scheduler.submit(request, inbox.put)
        return inbox

    def order(self, *requests: Request) -> list[int]:
        """The requests by number, in the order in which chunks of theirs ran."""
        prompts = [request.sequence.prompt for request in requests]
        ran = [what[0] for kind, what in self.engine.log if kind == "chunk"]
        return [prompts.index(one) for one in ran if one in prompts]


@contextmanager
def bench(model: Model, limits: Limits) -> Iterator[Bench]:
    clock = Clock()
    engine = Recorder(model.engine, clock)
    vision = model.engine.config.vision
    output = EncoderOutput(vision.out_hidden_size, len(vision.deepstack_layers), 2)
    cache = EmbeddingCache(1 << 20, output)
    with VLM(model) as vlm:
        recorded: Any = engine
        scheduler = Scheduler(recorded, vlm.context, 1 << 30, limits, cache, clock)
        try:
            yield Bench(vlm, engine, scheduler)
        finally:
            engine.gate.set()
            scheduler.close(0)


def kinds(log: list[tuple[str, Any]]) -> str:
    return "".join(kind[0] for kind, _ in log)


@pytest.fixture
def alone(tiny_model: Model) -> Model:
    """Only an engine that takes one prompt at a time overtakes."""
    if tiny_model.engine.traits.prefill_batch > 1:
        pytest.skip("this engine runs prompts together")
    return tiny_model


def stream(one: Bench) -> Inbox:
    """A long answer that has begun; the engine stands before the next step."""
    inbox = one.submit(one.prepare("tell", 200))
    begun = threading.Event()
    seen = one.engine._note

    def note(kind: str, what: Any, seconds: float) -> None:
        if kind == "step":
            begun.set()
        seen(kind, what, seconds)

    one.engine._note = note  # type: ignore[method-assign]
    one.engine.gate.set()
    assert begun.wait(60)
    one.engine.gate.clear()
    return inbox


def test_streams_go_on_between_parts_of_a_picture(alone: Model, pictures: list[Path]) -> None:
    with bench(alone, Limits(prefill_chunk=16)) as one:
        request = one.prepare("What?", 2, pictures[1])
        endless = stream(one)
        one.engine.log.clear()
        inbox = one.submit(request)
        one.engine.gate.set()
        inbox.result()
        ran = kinds(one.engine.log)
        num_parts = alone.engine.config.vision.num_parts
        assert ran.count("p") == num_parts
        assert num_parts > 3
        first = ran.index("p")
        until = len(ran) - ran[::-1].index("p")
        # A part takes as long as 2.2 steps: two steps follow it, or three.
        gaps = ran[first:until].strip("p").split("p")
        assert set(map(len, gaps)) <= {2, 3}
        assert "pp" not in ran
        endless.result()


def test_streams_keep_half_of_the_time(alone: Model) -> None:
    with bench(alone, Limits(prefill_chunk=16)) as one:
        request = one.prepare("a long text " * 60, 1)
        endless = stream(one)
        one.engine.log.clear()
        inbox = one.submit(request)
        one.engine.gate.set()
        inbox.result()
        log = one.engine.log
        last = max(index for index, (kind, _) in enumerate(log) if kind == "chunk")
        steps = sum(STEP_S for kind, _ in log[:last] if kind == "step")
        chunks = sum(TOKEN_S * what[1] for kind, what in log[: last + 1] if kind == "chunk")
        assert chunks > 5 * STEP_S
        # Prompts are ahead by one chunk at most. The step before the first chunk is not in the log.
        assert steps >= chunks - 16 * TOKEN_S - STEP_S
        endless.result()


def test_nothing_is_cut_shorter_without_streams(alone: Model) -> None:
    with bench(alone, Limits(prefill_chunk=256)) as one:
        request = one.prepare("a long text " * 60, 1)
        one.engine.gate.set()
        one.submit(request).result()
        sizes = [what[1] for kind, what in one.engine.log if kind == "chunk"]
        assert all(size == 256 for size in sizes[:-1])
        assert len(sizes) > 1


def test_a_short_question_overtakes_a_book(alone: Model) -> None:
    with bench(alone, Limits(prefill_chunk=16)) as one:
        book, short = one.prepare("a long text " * 60, 1), one.prepare("brief", 1)
        first = one.submit(book)
        while not one.scheduler._prompts.tickets:
            pass  # until the book is under way; its first chunk waits before the gate
        second = one.submit(short)
        one.engine.gate.set()
        assert first.result().text == one.vlm.ask(question="a long text " * 60, max_tokens=1).text
        assert second.result().text == one.vlm.ask(question="brief", max_tokens=1).text
        order = one.order(book, short)
        assert order[0] == 0
        assert 1 in order[1:3]
        assert order[-1] == 0


def test_a_book_is_not_overtaken_for_ever(alone: Model) -> None:
    """By nothing that comes after as much work as the book is."""
    with bench(alone, Limits(prefill_chunk=16, max_running=4)) as one:
        book = one.prepare("a long text " * 20, 1)
        shorts = [one.prepare(f"{n} " * 12, 1) for n in range(40)]
        inboxes: list[Inbox] = []
        came: list[int] = []  # after how much work each short question came

        def note(kind: str, what: Any, seconds: float) -> None:
            """Another short question comes whenever a chunk runs."""
            if kind == "chunk" and len(inboxes) < len(shorts):
                came.append(one.scheduler._prompts.work_done)
                inboxes.append(one.submit(shorts[len(inboxes)]))
            seen(kind, what, seconds)

        seen = one.engine._note
        one.engine._note = note  # type: ignore[method-assign]
        inbox = one.submit(book)
        one.engine.gate.set()
        inbox.result()
        order = one.order(book, *shorts)
        through = len(order) - order[::-1].index(0)
        overtook = set(order[:through]) - {0}
        late = {n for n, work in enumerate(came, 1) if work >= len(book.sequence.prompt)}
        assert overtook
        assert late
        assert not overtook & late
        for other in inboxes:
            other.result()
