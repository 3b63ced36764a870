"""The scheduler under faults: what goes wrong for one request stays with it.

The engine is the real one, with faults put in front of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from qwink.errors import (
    Cancelled,
    DeadlineExceeded,
    EngineStopped,
    GenerationError,
    OptionError,
    Overloaded,
    QwinkError,
)
from qwink.runtime.memory import Memory
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.request import Request, Ticket
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import Event, Message, Result


class FaultyEngine:
    """The engine behind it, with a gate before each step and a fault where one is set."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.gate = threading.Event()
        self.gate.set()
        self.fault: Callable[[str, Any], None] = lambda *_: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def prefill(self, cache: Any, chunks: Any) -> Any:
        self.gate.wait()
        self.fault("prefill", chunks)
        return self._engine.prefill(cache, chunks)

    def step(self, cache: Any, runs: Any) -> Any:
        self.gate.wait()
        self.fault("step", runs)
        return self._engine.step(cache, runs)


@contextmanager
def running(
    model: Model, limits: Limits | None = None, memory: Memory | None = None
) -> Iterator[tuple[VLM, FaultyEngine]]:
    engine: Any = FaultyEngine(model.engine)
    with VLM(replace(model, engine=engine), limits=limits, memory=memory) as vlm:
        try:
            yield vlm, engine
        finally:
            engine.gate.set()


def request(vlm: VLM, text: str, max_tokens: int = 6) -> Request:
    sampling = replace(vlm.sampling, max_tokens=max_tokens)
    return vlm.prepare([Message("user", (text,))], ImageOptions(), sampling)


class Inbox:
    """A listener that waits for the end."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[Event | Exception] = SimpleQueue()
        self.put = self._messages.put

    def result(self) -> Result:
        while True:
            message = self._messages.get(timeout=60)
            if isinstance(message, Exception):
                raise message
            if message.result is not None:
                return message.result

    def until_text(self) -> None:
        while True:
            message = self._messages.get(timeout=60)
            assert not isinstance(message, Exception), message
            if message.text:
                return


def submit(vlm: VLM, text: str, max_tokens: int = 6) -> tuple[Ticket, Inbox]:
    inbox = Inbox()
    ticket = vlm.scheduler.submit(request(vlm, text, max_tokens), inbox.put)
    assert isinstance(ticket, Ticket)
    return ticket, inbox


@pytest.mark.parametrize(("running_most", "waiting_most"), [(1, 1), (2, 3)])
def test_a_full_queue_refuses(tiny_model: Model, running_most: int, waiting_most: int) -> None:
    """As many as may run, and as many more as may wait, are taken at once; the next is not."""
    limits = Limits(max_running=running_most, max_waiting=waiting_most)
    with running(tiny_model, limits) as (vlm, engine):
        engine.gate.clear()
        taken = [submit(vlm, f"number {n}")[1] for n in range(running_most + waiting_most)]
        with pytest.raises(Overloaded, match=f"{waiting_most} requests are waiting"):
            submit(vlm, "one too many")
        engine.gate.set()
        assert all(inbox.result().text for inbox in taken)


def test_events_come_from_one_thread_and_the_result_last(tiny_model: Model) -> None:
    with running(tiny_model, Limits(max_running=1)) as (vlm, _):
        told: dict[int, list[tuple[int, Event | Exception]]] = {n: [] for n in range(4)}
        done = [threading.Event() for _ in told]

        def listen(number: int, message: Event | Exception) -> None:
            told[number].append((threading.get_ident(), message))
            if isinstance(message, Exception) or message.result is not None:
                done[number].set()

        for number in told:
            vlm.scheduler.submit(request(vlm, f"question {number}"), partial(listen, number))
        assert all(one.wait(60) for one in done)
        assert {thread for events in told.values() for thread, _ in events} == {
            vlm.scheduler._thread.ident
        }
        for events in told.values():
            stages = [e.stage for _, e in events if isinstance(e, Event)]
            assert "queue" not in stages[1:]  # it is told first or not at all
            last = events[-1][1]
            assert isinstance(last, Event)
            assert last.result is not None
        assert any(e.stage == "queue" for _, e in told[3] if isinstance(e, Event))


def test_a_request_taken_while_the_engine_dies_ends(tiny_model: Model) -> None:
    """Many threads submit while the engine thread dies: each is refused or told of the end."""
    with running(tiny_model, Limits(max_waiting=1000)) as (vlm, engine):
        prepared = [request(vlm, f"number {n}") for n in range(200)]
        inboxes: list[Inbox] = []
        refused: list[EngineStopped] = []
        die = threading.Event()

        def fault(*_: Any) -> None:
            if die.is_set():
                raise SystemExit("the engine is killed")

        def send(part: list[Request]) -> None:
            for one in part:
                inbox = Inbox()
                try:
                    vlm.scheduler.submit(one, inbox.put)
                except EngineStopped as error:
                    refused.append(error)
                else:
                    inboxes.append(inbox)

        engine.fault = fault
        threads = [threading.Thread(target=send, args=(prepared[n::4],)) for n in range(4)]
        for thread in threads:
            thread.start()
        die.set()
        for thread in threads:
            thread.join()
        ended = 0
        for inbox in inboxes:
            with suppress(EngineStopped):
                inbox.result()
            ended += 1
        assert ended + len(refused) == 200
        assert not vlm.scheduler.alive


def test_the_lock_is_held_from_the_check_to_the_queue(tiny_model: Model) -> None:
    """The engine thread dies between `submit`'s check and its append: the request still ends."""
    with running(tiny_model) as (vlm, engine):
        scheduler, inbox = vlm.scheduler, Inbox()
        one = request(vlm, "unlucky")
        queued = one.watch.queued

        def slow() -> None:  # called between the check and the append
            engine.fault = fail
            engine.gate.set()
            scheduler._thread.join(0.3)  # the thread can only die here if the lock is free
            queued()

        def fail(*_: Any) -> None:
            raise SystemExit("the engine is killed")

        engine.gate.clear()
        _, first = submit(vlm, "first")
        one.watch.queued = slow  # type: ignore[method-assign]
        scheduler.submit(one, inbox.put)
        for waiting in (first, inbox):
            with pytest.raises(EngineStopped):
                waiting.result()


def test_a_late_request_ends_others_go_on(tiny_model: Model) -> None:
    with running(tiny_model) as (vlm, engine):
        engine.gate.clear()
        late, inbox = request(vlm, "late"), Inbox()
        late.deadline = time.monotonic() - 1
        vlm.scheduler.submit(late, inbox.put)
        _, good = submit(vlm, "in time")
        engine.gate.set()
        with pytest.raises(DeadlineExceeded):
            inbox.result()
        assert good.result().text


def test_a_cancelled_request_frees_its_slot(tiny_model: Model) -> None:
    with running(tiny_model, Limits(max_running=1)) as (vlm, _):
        ticket, first = submit(vlm, "endless", 2000)
        first.until_text()
        _, second = submit(vlm, "next")
        ticket.cancel()
        with pytest.raises(Cancelled):
            first.result()
        assert second.result().text
        # The answer comes before its slot is given back: ask after the engine's next step.
        assert vlm.scheduler.call(lambda: vlm.scheduler.num_running) == 0


def test_a_failing_prompt_fails_alone(tiny_model: Model) -> None:
    with running(tiny_model) as (vlm, engine):
        wanted = vlm.ask(question="good").text

        def fault(kind: str, chunks: Any) -> None:
            if kind == "prefill" and bad.sequence.prompt in [chunk.prompt for chunk in chunks]:
                raise RuntimeError("a broken prompt")

        bad, inbox = request(vlm, "something else"), Inbox()
        engine.fault = fault
        vlm.scheduler.submit(bad, inbox.put)
        _, good = submit(vlm, "good", 12)
        with pytest.raises(RuntimeError, match="broken prompt"):
            inbox.result()
        assert good.result().text == wanted


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_row_that_breaks_the_batch_fails_alone(tiny_model: Model, victim: int) -> None:
    texts = ["alpha", "beta beta", "gamma gamma gamma"]
    with running(tiny_model) as (vlm, engine):
        wanted = [vlm.ask(question=text, max_tokens=8).text for text in texts]
        engine.gate.clear()
        submitted = [submit(vlm, text, 8) for text in texts]
        poisoned: list[int] = []

        def fault(kind: str, runs: Any) -> None:
            if kind != "step":
                return
            if len(runs) == 3:  # all run: from now on this one is poisoned
                poisoned[:] = [submitted[victim][0].slot]
            if poisoned and poisoned[0] in [run.slot for run in runs]:
                raise RuntimeError("a poisoned row")

        engine.fault = fault
        engine.gate.set()
        for index, (_, inbox) in enumerate(submitted):
            if index == victim:
                with pytest.raises(RuntimeError, match="poisoned"):
                    inbox.result()
            else:
                assert inbox.result().text == wanted[index]


def test_values_that_are_not_numbers_fail_their_row_only(tiny_model: Model) -> None:
    with running(tiny_model) as (vlm, engine):
        wanted = vlm.ask(question="good", max_tokens=8).text
        step = engine.step

        def broken(cache: Any, runs: Any) -> Any:
            logits = step(cache, runs)
            if len(runs) == 2:
                logits[[run.slot for run in runs].index(ticket.slot)] = float("nan")
            return logits

        engine.gate.clear()
        engine.step = broken  # type: ignore[method-assign]
        ticket, bad = submit(vlm, "bad", 8)
        _, good = submit(vlm, "good", 8)
        engine.gate.set()
        with pytest.raises(GenerationError, match="not numbers"):
            bad.result()
        assert good.result().text == wanted


def test_a_listener_that_raises_ends_its_own_request(tiny_model: Model) -> None:
    with running(tiny_model) as (vlm, _):

        def broken(_: Event | Exception) -> None:
            raise OSError("the client is gone")

        vlm.scheduler.submit(request(vlm, "to nobody", 500), broken)
        _, good = submit(vlm, "good")
        assert good.result().text
        while vlm.scheduler.num_running:
            time.sleep(0.001)


def test_the_death_of_the_engine_thread_leaves_nobody_waiting(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tiny_model) as (vlm, engine):
        engine.gate.clear()
        _, waiting = submit(vlm, "hello")

        def die() -> None:
            raise MemoryError("no memory left")

        monkeypatch.setattr(vlm.scheduler, "_step", die)
        engine.gate.set()
        with pytest.raises(EngineStopped, match="no memory left"):
            waiting.result()
        assert not vlm.scheduler.alive
        with pytest.raises(EngineStopped):
            submit(vlm, "anybody?")


def test_closing_finishes_what_is_under_way(tiny_model: Model) -> None:
    with running(tiny_model) as (vlm, _):
        _, inbox = submit(vlm, "hello", 6)
        vlm.close()
        assert inbox.result().text
        with pytest.raises(QwinkError):
            submit(vlm, "too late")


def test_closing_ends_what_takes_too_long(tiny_model: Model) -> None:
    with running(tiny_model) as (vlm, engine):
        _, inbox = submit(vlm, "endless", 3000)
        inbox.until_text()
        engine.fault = lambda *_: time.sleep(0.05)
        vlm.close(0.1)
        with pytest.raises(Cancelled):
            inbox.result()


def test_closing_waits_for_the_step_under_way(tiny_model: Model) -> None:
    """Also when there is no patience: a thread inside PyTorch would crash the ending process."""
    with running(tiny_model) as (vlm, engine):
        _, inbox = submit(vlm, "endless", 3000)
        inbox.until_text()
        engine.fault = lambda *_: time.sleep(0.3)
        vlm.close(0)
        assert not vlm.scheduler.alive


def test_admission_is_bounded_by_memory(tiny_model: Model) -> None:
    bytes_per_token = tiny_model.engine.bytes_per_token
    memory = Memory(kv_bytes=150 * bytes_per_token, image_bytes=0)
    with running(tiny_model, Limits(max_running=4), memory) as (vlm, _):
        inboxes = [submit(vlm, f"number {number}", 60)[1] for number in range(4)]
        most = 0
        while vlm.scheduler.num_running or vlm.scheduler.num_waiting:
            most = max(most, vlm.scheduler.num_running)
            time.sleep(0.0005)
        assert all(inbox.result().text is not None for inbox in inboxes)
        assert most <= 1


def test_a_context_beyond_the_memory_budget_is_refused(tiny_model: Model) -> None:
    memory = Memory(kv_bytes=100 * tiny_model.engine.bytes_per_token, image_bytes=0)
    with VLM(tiny_model, memory=memory) as vlm:
        assert vlm.context == 100
    with pytest.raises(OptionError, match="raise --memory-mb or lower --context"):
        VLM(tiny_model, context=101, memory=memory)
