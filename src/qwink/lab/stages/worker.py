"""The measuring process: loads a model, answers a list of questions, writes the times.

`python -m qwink.lab.stages.worker JOB`, where JOB is a `StagesJob` as JSON. It writes a line of
JSON when the model is loaded, one for each answer, and one for an error. The parent measures the
time of the whole process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from qwink.errors import QwinkError
from qwink.lab.facts import peak_rss_bytes
from qwink.runtime.memory import Memory
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import STAGES, Result


@dataclass(frozen=True, slots=True)
class StagesJob:
    """The questions. `sizes` are names and areas in pixels; each is asked once a round.

    Round 0 warms up; its answers are reported, too.
    """

    artifact: str  # folder
    threads: int
    picture: str  # path
    question: str
    sizes: tuple[tuple[str, int], ...]
    rounds: int
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class StagesAnswer:
    """One answer's times in milliseconds, and this process's peak memory after it."""

    round: int
    size: str
    stages_ms: dict[str, float]
    first_token_ms: float
    token_ms: float | None  # per token after the first; None if there is none
    total_ms: float
    image_tokens: int
    prompt_tokens: int
    answer_tokens: int
    peak_rss_bytes: int


def answers(vlm: VLM, job: StagesJob) -> Iterator[StagesAnswer]:
    """All sizes in each round, so that noise of the machine affects them alike."""
    for number in range(job.rounds + 1):
        for name, pixels in job.sizes:
            result = vlm.ask(
                [job.picture],
                job.question,
                min_pixels=pixels,
                max_pixels=pixels,
                max_tokens=job.answer_tokens,
                temperature=0.0,
            )
            yield _answer(number, name, result)


def _answer(number: int, size: str, result: Result) -> StagesAnswer:
    timings, usage = result.timings, result.usage
    more = usage.completion_tokens - 1
    return StagesAnswer(
        number,
        size,
        {stage: getattr(timings, f"{stage}_ms") for stage in STAGES},
        timings.first_token_ms,
        timings.generate_ms / more if more else None,
        timings.total_ms,
        usage.image_tokens,
        usage.prompt_tokens,
        usage.completion_tokens,
        peak_rss_bytes(),
    )


def main(argument: str) -> None:
    values = json.loads(argument)
    job = StagesJob(**values | {"sizes": tuple((name, pixels) for name, pixels in values["sizes"])})
    try:
        # Without caches, every answer is computed in full.
        memory, limits = Memory.default().without_images(), Limits(keep_prompts=False)
        # Random weights answer in loops, which drafts would make faster than any real text.
        with load(
            job.artifact, threads=job.threads, memory=memory, limits=limits, speculate="off"
        ) as vlm:
            _write({"loaded": True})
            for answer in answers(vlm, job):
                _write(asdict(answer))
    except QwinkError as error:
        _write({"error": str(error)})


def _write(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
