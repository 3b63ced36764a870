"""Requests in the background: the others come first, and keep a slot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qwink.errors import Overloaded
from qwink.runtime.request import Listener
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import Event
from tests.runtime.test_scheduler import Inbox, request, running, submit


def submit_background(vlm: VLM, text: str, listener: Listener, max_tokens: int = 6) -> None:
    asked = request(vlm, text, max_tokens)
    asked.background = True
    vlm.scheduler.submit(asked, listener)


def noting(order: list[str], name: str, inbox: Inbox) -> Callable[[Event | Exception], None]:
    """A listener that notes the first text and the end."""
    begun: list[bool] = []

    def listener(message: Event | Exception) -> None:
        if isinstance(message, Event) and message.text and not begun:
            begun.append(True)
            order.append(f"{name} begins")
        if isinstance(message, Event) and message.result is not None:
            order.append(f"{name} ends")
        inbox.put(message)

    return listener


def test_the_last_slot_is_kept_for_others(tiny_model: Model) -> None:
    with running(tiny_model, Limits(max_running=2)) as (vlm, engine):
        order: list[str] = []
        inboxes = [Inbox() for _ in range(3)]
        engine.gate.clear()
        for name, inbox in zip("abc", inboxes, strict=True):
            submit_background(vlm, name, noting(order, name, inbox), 12)
        engine.gate.set()
        for inbox in inboxes:
            inbox.result()
        # One after the other, though there are two slots.
        running_now: set[str] = set()
        for entry in order:
            name, what = entry.split()
            (running_now.add if what == "begins" else running_now.discard)(name)
            assert len(running_now) <= 1, order
        assert submit(vlm, "live")[1].result().text


def test_others_overtake_those_in_the_background(tiny_model: Model) -> None:
    with running(tiny_model, Limits(max_running=1)) as (vlm, engine):
        order: list[str] = []
        engine.gate.clear()
        first = submit(vlm, "the first one")[1]
        behind, long = Inbox(), Inbox()
        submit_background(vlm, "short", noting(order, "behind", behind))
        vlm.scheduler.submit(request(vlm, "long " * 200), noting(order, "long", long))
        engine.gate.set()
        for inbox in (first, behind, long):
            inbox.result()
        assert order.index("long ends") < order.index("behind ends")


def test_the_background_takes_no_place_in_the_queue(tiny_model: Model) -> None:
    with running(tiny_model, Limits(max_running=1, max_waiting=1)) as (vlm, engine):
        engine.gate.clear()
        inboxes = [Inbox() for _ in range(2)]
        for inbox in inboxes:
            submit_background(vlm, "behind", inbox.put)
        with pytest.raises(Overloaded):
            submit_background(vlm, "one too many", Inbox().put)
        live = [submit(vlm, f"live {number}")[1] for number in range(2)]
        assert vlm.scheduler.num_live_running == 0
        engine.gate.set()
        for inbox in (*live, *inboxes):
            assert inbox.result().usage.completion_tokens
