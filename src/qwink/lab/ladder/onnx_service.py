"""qwink as a service in this process: resident, with or without caches and concurrent users."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.lab.ladder.answers import RungAnswer, unpatchify
from qwink.lab.ladder.questions import Question
from qwink.lab.ladder.rungs import Ours
from qwink.model.artifact import Artifact
from qwink.runtime.memory import Memory
from qwink.runtime.models import load
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import Event, Message, Patches, Result, SamplingParams


class Listening:
    """A sequence that keeps the logits of its first token."""

    def __init__(self, sequence: Any) -> None:
        self._sequence = sequence
        self.logits: NDArray[np.float32] | None = None

    def accept(self, logits: NDArray[np.float32]) -> Any:
        if self.logits is None:
            self.logits = logits[0].copy()
        return self._sequence.accept(logits)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sequence, name)


@contextmanager
def running(artifact: Artifact, options: Ours, threads: int | None) -> Iterator[VLM]:
    """The model, loaded and warmed up, with the caches that the rung uses."""
    memory = Memory.default()
    if not options.embedding_cache:
        memory = memory.without_images()
    limits = Limits(max_running=options.running, keep_prompts=options.prefix_cache)
    # Random weights answer in loops, which drafts would make faster than any real text.
    with load(
        artifact.folder, threads=threads, memory=memory, limits=limits, speculate="off"
    ) as vlm:
        vlm.ask(np.zeros((224, 224, 3), np.uint8), "Warm up.", max_tokens=2)
        yield vlm


def answer_all(
    vlm: VLM,
    questions: Sequence[Question],
    max_tokens: int,
    users: int = 1,
    listen: Callable[[RungAnswer], None] = lambda _: None,
) -> list[RungAnswer]:
    """Ask all questions, `users` at a time; each user asks the next one when answered."""

    def answer(question: Question) -> RungAnswer:
        found = _answer(vlm, question, max_tokens)
        listen(found)
        return found

    start = time.perf_counter()
    with ThreadPoolExecutor(users) as pool:
        found = list(pool.map(answer, questions))
    if users == 1:
        return found
    share = (time.perf_counter() - start) * 1e3 / len(questions)
    return [replace(answer, per_answer_ms=share) for answer in found]


def _answer(vlm: VLM, question: Question, max_tokens: int) -> RungAnswer:
    start = time.perf_counter()
    request = vlm.prepare(
        [Message("user", (Path(question.path), question.text))],
        ImageOptions(min_pixels=question.task[0], max_pixels=question.task[1], strips="off"),
        SamplingParams(max_tokens=max_tokens),
    )
    listening: Any = Listening(request.sequence)
    request.sequence = listening
    inbox: SimpleQueue[Event | Exception] = SimpleQueue()
    vlm.scheduler.submit(request, inbox.put)
    result = _result(inbox)
    total_ms = (time.perf_counter() - start) * 1e3
    patches, timings = request.images[0].content, result.timings
    assert isinstance(patches, Patches)
    return RungAnswer(
        question.name,
        load_ms=0.0,
        prepare_ms=timings.fetch_ms + timings.decode_ms + timings.resize_ms,
        first_token_ms=timings.first_token_ms,
        total_ms=total_ms,
        per_answer_ms=total_ms,
        image_tokens=result.usage.image_tokens,
        tokens=tuple(listening.generated),
        text=result.text,
        logits=listening.logits,
        image=unpatchify(patches.pixels, patches.grid),
    )


def _result(inbox: SimpleQueue[Event | Exception]) -> Result:
    while True:
        message = inbox.get()
        if isinstance(message, Exception):
            raise message
        if message.result is not None:
            return message.result
