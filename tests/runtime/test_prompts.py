"""Prompts that are run together, on an engine that gains from it and on one that does not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from qwink.runtime.messages import ImagePart
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import Message, Patches
from tests.runtime.test_scheduler import FaultyEngine, Inbox, request, running, submit

TEXTS = ("alpha " * 40, "beta", "gamma " * 12)  # the second is through first
CHUNKS = Limits(prefill_chunk=16)


class Recorder:
    """Remembers how many prompts each call of `prefill` was given."""

    def __init__(self, engine: FaultyEngine) -> None:
        self.sizes: list[int] = []
        engine.fault = self._note

    def _note(self, kind: str, args: Any) -> None:
        if kind == "prefill":
            self.sizes.append(len(args))


def hold(vlm: VLM, engine: FaultyEngine) -> Inbox:
    """Keep the engine busy with a prompt, so that what is submitted next waits together."""
    engine.gate.clear()
    _, inbox = submit(vlm, "hold the door", 1)
    while vlm.scheduler._waiting.tickets:
        time.sleep(0.001)
    return inbox


def test_prompts_of_different_lengths_run_together(tiny_model: Model) -> None:
    with running(tiny_model, CHUNKS) as (vlm, engine):
        wanted = [vlm.ask(question=text, max_tokens=8).text for text in TEXTS]
    with running(tiny_model, CHUNKS) as (vlm, engine):
        recorder = Recorder(engine)
        held = hold(vlm, engine)
        inboxes = [submit(vlm, text, 8)[1] for text in TEXTS]
        engine.gate.set()
        assert [inbox.result().text for inbox in inboxes] == wanted
        assert held.result().text is not None
        assert max(recorder.sizes) == engine.traits.prefill_batch
        timings = [vlm.ask(question=text, max_tokens=1).timings for text in TEXTS]
        assert all(t.notes for t in timings)  # what ran together is remembered, too


def test_slots_bound_how_many_start(tiny_model: Model) -> None:
    with running(tiny_model, Limits(max_running=2)) as (vlm, engine):
        recorder = Recorder(engine)
        hold(vlm, engine)
        inboxes = [submit(vlm, text, 8)[1] for text in TEXTS]
        engine.gate.set()
        assert all(inbox.result().usage.completion_tokens for inbox in inboxes)
        assert max(recorder.sizes) == min(2, engine.traits.prefill_batch)


def test_a_prompt_that_breaks_the_group_fails_alone(tiny_model: Model) -> None:
    with running(tiny_model, CHUNKS) as (vlm, engine):
        wanted = [vlm.ask(question=text, max_tokens=8).text for text in TEXTS]
    with running(tiny_model, CHUNKS) as (vlm, engine):
        hold(vlm, engine)
        submitted = [submit(vlm, text, 8) for text in TEXTS]
        bad = submitted[0][0].prompt

        def fault(kind: str, chunks: Any) -> None:
            if kind == "prefill" and any(c.prompt is bad and c.start >= 16 for c in chunks):
                raise RuntimeError("a broken chunk")

        engine.fault = fault
        engine.gate.set()
        with pytest.raises(RuntimeError, match="broken chunk"):
            submitted[0][1].result()
        for (_, inbox), text in zip(submitted[1:], wanted[1:], strict=True):
            assert inbox.result().text == text


def test_giving_up_leaves_the_others_alone(tiny_model: Model) -> None:
    with running(tiny_model, CHUNKS) as (vlm, engine):
        wanted = [vlm.ask(question=text, max_tokens=8).text for text in TEXTS]
    with running(tiny_model, CHUNKS) as (vlm, engine):
        hold(vlm, engine)
        submitted = [submit(vlm, text, 8) for text in TEXTS]
        calls: list[int] = []

        def fault(kind: str, chunks: Any) -> None:
            calls.append(len(chunks))
            if kind == "prefill" and len(calls) == 2:  # the group's first chunk
                submitted[0][0].cancel()

        engine.fault = fault
        engine.gate.set()
        for (_, inbox), text in zip(submitted[1:], wanted[1:], strict=True):
            assert inbox.result().text == text


def test_common_starts_are_computed_once(tiny_model: Model) -> None:
    """Prompts that share most of themselves do not run together: the second copies."""
    shared = "the same long question " * 6
    with running(tiny_model, CHUNKS) as (vlm, engine):
        hold(vlm, engine)
        _, first = submit(vlm, shared + "one", 8)
        _, second = submit(vlm, shared + "two", 8)
        engine.gate.set()
        first.result()
        assert second.result().usage.cached_tokens > 20


def test_a_start_that_cannot_be_copied_is_computed(tiny_model: Model) -> None:
    """Because memory is short, say: the answer is the same."""
    other = TEXTS[0] + "delta " * 70  # so different at the end that its start is copied
    with running(tiny_model) as (vlm, _):
        wanted = vlm.ask(question=other, max_tokens=8).text
    with running(tiny_model) as (vlm, _):
        vlm.ask(question=TEXTS[0] + "omega " * 70, max_tokens=8)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vlm.scheduler._cache, "copy", fail)
            again = vlm.ask(question=other, max_tokens=8)
        assert (again.text, again.usage.cached_tokens) == (wanted, 0)


def fail(*_: Any) -> None:
    raise MemoryError("no memory left")


def test_what_nobody_foresaw_ends_a_request_not_the_service(
    tiny_model: Model, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tiny_model) as (vlm, _):
        with monkeypatch.context() as patch:
            patch.setattr(vlm.scheduler.embeddings, "put", fail)
            with pytest.raises(MemoryError, match="no memory left"):
                vlm.ask(pictures[0], "What is this?", max_pixels=8192, min_pixels=4096)
        assert vlm.ask(pictures[0], "What is this?", max_pixels=8192, min_pixels=4096).text
        assert vlm.scheduler.num_waiting == 0


def test_images_are_encoded_together_and_once(tiny_model: Model, pictures: list[Path]) -> None:
    with running(tiny_model) as (vlm, engine):
        calls: list[list[Patches]] = []
        real = engine.encode_parts

        def encode(images: list[Patches]) -> Any:
            calls.append(list(images))
            yield from real(images)

        engine.encode_parts = encode  # type: ignore[attr-defined]
        hold(vlm, engine)
        inboxes = []
        # The second has more to do in all, so it comes after the first.
        asked = (("What changed?", pictures), ("And this one, so? " * 60, pictures[:1]))
        for question, paths in asked:
            sampling = vlm.split_options({"max_tokens": 4})[1]
            options = ImageOptions(min_pixels=4096, max_pixels=8192)
            message = Message("user", (*map(ImagePart, paths), question))
            inbox = Inbox()
            prepared = vlm.prepare([message], options, sampling)
            vlm.scheduler.submit(prepared, inbox.put)
            inboxes.append(inbox)
        engine.gate.set()
        results = [inbox.result() for inbox in inboxes]
        keys = [patches.key for images in calls for patches in images]
        assert len(keys) == len(set(keys)) == 3
        assert max(map(len, calls)) == min(3, engine.traits.encode_batch)
        assert results[0].timings.origins["encode"] == "computed"
        assert results[1].timings.origins["encode"] == "reused"


def test_an_image_that_fails_takes_only_its_own_request(
    tiny_model: Model, pictures: list[Path]
) -> None:
    with running(tiny_model) as (vlm, engine):
        real = engine.encode_parts
        options = ImageOptions(min_pixels=4096, max_pixels=8192)
        sampling = vlm.split_options({"max_tokens": 4})[1]
        requests = [
            vlm.prepare([Message("user", (ImagePart(path), "What?"))], options, sampling)
            for path in pictures
        ]
        bad = requests[1].images[0].content

        def encode(images: list[Patches]) -> Any:
            if any(image is bad for image in images):
                raise RuntimeError("a broken image")
            yield from real(images)

        engine.encode_parts = encode  # type: ignore[attr-defined]
        hold(vlm, engine)
        inboxes = [Inbox() for _ in requests]
        for prepared, inbox in zip(requests, inboxes, strict=True):
            vlm.scheduler.submit(prepared, inbox.put)
        engine.gate.set()
        with pytest.raises(RuntimeError, match="broken image"):
            inboxes[1].result()
        assert inboxes[0].result().usage.image_tokens
        assert inboxes[2].result().usage.image_tokens
        assert request(vlm, "still there")
