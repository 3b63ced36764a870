"""Requests whose images a shared store may have: in time, too late, during encoding, or never."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qwink.cache import embeddings
from qwink.cache.embeddings import Expected, as_float16
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.types import EncodedImage, Result
from tests.runtime.test_scheduler import Inbox, submit

SMALL: dict[str, Any] = {"min_pixels": 1024, "max_pixels": 8192}
FOREVER_S = 3600.0


class Shared:
    """A shared store that has images, and gives them when the test says so."""

    def __init__(self, *images: EncodedImage) -> None:
        self.images = list(images)
        self.fetches: list[Future[EncodedImage | None]] = []
        self.kept: list[EncodedImage] = []
        self.asked = threading.Semaphore(0)
        self.at_once = False

    def fetch(self, expected: Expected) -> Future[EncodedImage | None]:
        self.fetches.append(Future())
        if self.at_once:
            self.deliver(-1, expected)
        self.expected = expected
        self.asked.release()
        return self.fetches[-1]

    def deliver(self, number: int = -1, expected: Expected | None = None) -> None:
        """Settle a fetch: with the image if the store has it."""
        wanted = expected or self.expected
        found = [one for one in self.images if wanted.key.startswith(one.key)]
        self.fetches[number].set_result(replace(found[0], key=wanted.key) if found else None)

    def put(self, image: EncodedImage) -> None:
        self.kept.append(image)

    def close(self) -> None: ...


class Parts:
    """An engine whose encoder gives way between parts, and calls the test there."""

    def __init__(self, engine: Any, num_parts: int = 4) -> None:
        self._engine, self._num_parts = engine, num_parts
        self.num_ran = 0
        self.between: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def encode_parts(self, images: Any) -> Iterator[list[EncodedImage] | None]:
        for _ in range(self._num_parts):
            self.num_ran += 1
            self.between()
            yield None
        yield self._engine.encode(images)


@contextmanager
def running(model: Model, shared: Shared) -> Iterator[tuple[VLM, Parts]]:
    engine: Any = Parts(model.engine)
    with VLM(replace(model, engine=engine), shared=shared) as vlm:
        yield vlm, engine


@pytest.fixture
def answer(tiny_model: Model, pictures: list[Path]) -> tuple[Result, EncodedImage]:
    """The answer without a store, and the encoded picture as stores keep it."""
    with VLM(tiny_model) as vlm:
        return ask(vlm, pictures[0]), as_float16(vlm.encode(pictures[0], "What is this?", **SMALL))


def ask(vlm: VLM, *pictures: Path) -> Result:
    return vlm.ask(list(pictures), "What is this?", **SMALL)


@pytest.mark.parametrize("has", [True, False])
def test_an_image_that_comes_at_once(
    tiny_model: Model, pictures: list[Path], answer: tuple[Result, EncodedImage], has: bool
) -> None:
    shared = Shared(*(answer[1:] if has else ()))
    shared.at_once = True
    with running(tiny_model, shared) as (vlm, engine):
        result = ask(vlm, pictures[0])
        again = ask(vlm, pictures[0])
    assert result.text == again.text == answer[0].text
    assert engine.num_ran == (0 if has else 4)
    assert len(shared.fetches) == 1
    assert len(shared.kept) == (0 if has else 1)
    assert result.timings.origins["encode"] == ("reused" if has else "computed")


def test_an_image_that_comes_while_the_request_is_held(
    tiny_model: Model,
    pictures: list[Path],
    answer: tuple[Result, EncodedImage],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embeddings, "PATIENCE_S", FOREVER_S)
    shared = Shared(answer[1])
    found: list[Result] = []
    with running(tiny_model, shared) as (vlm, engine):
        asking = threading.Thread(target=lambda: found.append(ask(vlm, pictures[0])))
        asking.start()
        assert shared.asked.acquire(timeout=60)
        _, other = submit(vlm, "others are answered meanwhile", 4)
        assert other.result().usage.completion_tokens == 4
        assert not found
        shared.deliver()
        asking.join(60)
        assert found[0].text == answer[0].text
        assert engine.num_ran == 0


def test_an_image_that_never_comes(
    tiny_model: Model, pictures: list[Path], answer: tuple[Result, EncodedImage]
) -> None:
    shared = Shared()
    with running(tiny_model, shared) as (vlm, _):
        assert ask(vlm, pictures[0]).text == answer[0].text
        assert shared.fetches[0].cancelled()
        assert len(shared.kept) == 1


def test_an_image_that_comes_while_it_is_encoded(
    tiny_model: Model, pictures: list[Path], answer: tuple[Result, EncodedImage]
) -> None:
    shared = Shared(answer[1])
    with running(tiny_model, shared) as (vlm, engine):
        engine.between = lambda: shared.deliver() if engine.num_ran == 2 else None
        assert ask(vlm, pictures[0]).text == answer[0].text
        assert engine.num_ran == 2
        assert not shared.kept


def test_of_several_images_some_come(
    tiny_model: Model, pictures: list[Path], answer: tuple[Result, EncodedImage]
) -> None:
    with VLM(tiny_model) as vlm:
        wanted = ask(vlm, *pictures).text
    shared = Shared(answer[1])
    shared.at_once = True
    with running(tiny_model, shared) as (vlm, _):
        assert ask(vlm, *pictures).text == wanted
        assert len(shared.fetches) == 3
        assert len(shared.kept) == 2


def test_a_held_request_can_be_cancelled_and_closed(
    tiny_model: Model, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "PATIENCE_S", 0.2)
    shared = Shared()
    with running(tiny_model, shared) as (vlm, engine):
        message = vlm.prepare(
            *_turn(vlm, pictures[0]),
        )
        inbox = Inbox()
        ticket = vlm.scheduler.submit(message, inbox.put)
        ticket.cancel()
        with pytest.raises(Exception, match="cancelled"):
            inbox.result()
        assert engine.num_ran == 0


def test_encode_takes_what_comes_and_does_not_wait_for_more(
    tiny_model: Model, pictures: list[Path], answer: tuple[Result, EncodedImage]
) -> None:
    for has in (True, False):
        shared = Shared(answer[1])
        shared.at_once = has
        with running(tiny_model, shared) as (vlm, _):
            found = vlm.encode(pictures[0], "What is this?", **SMALL)
            assert as_float16(found).embeds.tobytes() == answer[1].embeds.tobytes()
            assert len(shared.kept) == (0 if has else 1)


def _turn(vlm: VLM, picture: Path) -> Any:
    from qwink.runtime.messages import ImagePart
    from qwink.runtime.preparation import ImageOptions
    from qwink.types import Message

    message = Message("user", (ImagePart(picture), "What is this?"))
    return [message], ImageOptions(**SMALL), vlm.sampling
