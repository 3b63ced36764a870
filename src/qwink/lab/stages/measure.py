"""Times of the stages by size and threads, peak memory, cold start, and the cost card."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwink.errors import QwinkError
from qwink.export.recipe import get_recipe
from qwink.lab.cost.card import Card, Measured, cost_card
from qwink.lab.cost.ceilings import Ceilings, measure_ceilings
from qwink.lab.record import Record, record
from qwink.lab.stages.worker import StagesAnswer, StagesJob
from qwink.lab.statistics import Summary, summarise
from qwink.model.artifact import Artifact
from qwink.types import STAGES, Stage


@dataclass(frozen=True, slots=True)
class StagesPlan:
    """What to measure. `sizes` are names and areas in pixels, smallest first."""

    artifact: Artifact
    picture: str  # path
    picture_size: tuple[int, int]
    sizes: tuple[tuple[str, int], ...]
    threads: tuple[int, ...]
    rounds: int = 5
    answer_tokens: int = 16
    question: str = "What is shown in this picture?"


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The first request to a new process, with its files in the page cache.

    `loaded_ms` and `first_token_ms` count from the start of the process; `extra_ms` is the
    time of the whole answer less the median of later ones.
    """

    size: str
    loaded_ms: float
    first_token_ms: float
    extra_ms: float


@dataclass(frozen=True, slots=True)
class SizeResult:
    """Answers about one picture at one size. Memory is the process's peak up to this size."""

    size: str
    image_tokens: int
    prompt_tokens: int
    answer_tokens: int
    stages_ms: dict[Stage, Summary]
    first_token_ms: Summary
    token_ms: Summary | None  # per token after the first
    total_ms: Summary
    peak_rss_bytes: int
    card: Card


@dataclass(frozen=True, slots=True)
class ThreadsResult:
    """The measurements of one process with `threads` threads."""

    threads: int
    ceilings: Ceilings
    cold_start: ColdStart
    sizes: tuple[SizeResult, ...]


@dataclass(frozen=True, slots=True)
class StagesResult:
    """The measurements of `qwink bench stages`."""

    model: str
    recipe: str
    picture_size: tuple[int, int]
    rounds: int
    runs: tuple[ThreadsResult, ...]


def measure_stages(
    plan: StagesPlan, report: Callable[[str], None] = lambda _: None
) -> Record[StagesResult]:
    """Run a new process for each number of threads, one after the other.

    `report` is called with each step's description. Raises QwinkError if a process cannot answer.
    """
    report(f"reading {plan.artifact.folder}")
    _read_through(plan.artifact.folder)
    runs = tuple(_measure_threads(plan, threads, report) for threads in plan.threads)
    manifest = plan.artifact.manifest
    result = StagesResult(manifest.name, manifest.recipe, plan.picture_size, plan.rounds, runs)
    return record("stages", result)


def _read_through(folder: Path) -> None:
    """Read a folder's files, so that all processes find them in the page cache."""
    buffer = bytearray(1 << 22)
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _measure_threads(
    plan: StagesPlan, threads: int, report: Callable[[str], None]
) -> ThreadsResult:
    job = StagesJob(
        str(plan.artifact.folder),
        threads,
        plan.picture,
        plan.question,
        plan.sizes,
        plan.rounds,
        plan.answer_tokens,
    )
    report(f"threads {threads}: loading")
    answers: list[StagesAnswer] = []
    started = loaded = answered = time.perf_counter()
    with _worker(job) as lines:
        for values in lines:
            if "loaded" in values:
                loaded = time.perf_counter()
                continue
            if not answers:
                answered = time.perf_counter()
            answers.append(StagesAnswer(**values))
            if len(answers) % len(plan.sizes) == 0:
                report(f"threads {threads}: round {answers[-1].round} of {plan.rounds}")
    ceilings = measure_ceilings(threads)
    sizes = tuple(_summary(plan, name, answers, ceilings) for name, _ in plan.sizes)
    first, whole_ms = answers[0], (answered - started) * 1e3
    cold = ColdStart(
        first.size,
        round((loaded - started) * 1e3, 1),
        round(whole_ms - first.total_ms + first.first_token_ms, 1),
        round(whole_ms - sizes[0].total_ms.median, 1),
    )
    return ThreadsResult(threads, ceilings, cold, sizes)


@contextmanager
def _worker(job: StagesJob) -> Iterator[Iterator[dict[str, Any]]]:
    """The lines of a worker's process; leaving the context ends the process."""
    command = [sys.executable, "-m", "qwink.lab.stages.worker", json.dumps(asdict(job))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield _checked(process.stdout)
        if process.wait():
            raise QwinkError(f"the measuring process ended with code {process.returncode}")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _checked(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        values: dict[str, Any] = json.loads(line)
        if "error" in values:
            raise QwinkError(values["error"])
        yield values


def _summary(
    plan: StagesPlan, size: str, answers: list[StagesAnswer], ceilings: Ceilings
) -> SizeResult:
    warm, *rows = (answer for answer in answers if answer.size == size)
    token_ms = [row.token_ms for row in rows if row.token_ms is not None]
    stages = {stage: summarise([row.stages_ms[stage] for row in rows]) for stage in STAGES}
    token = summarise(token_ms) if token_ms else None
    measured = Measured(
        stages["encode"].median, stages["prefill"].median, token.median if token else None
    )
    manifest, config = plan.artifact.manifest, plan.artifact.config
    return SizeResult(
        size,
        warm.image_tokens,
        warm.prompt_tokens,
        warm.answer_tokens,
        stages,
        summarise([row.first_token_ms for row in rows]),
        token,
        summarise([row.total_ms for row in rows]),
        warm.peak_rss_bytes,
        cost_card(
            config,
            get_recipe(manifest.recipe),
            manifest.layout,
            warm.image_tokens,
            warm.prompt_tokens,
            ceilings,
            measured,
        ),
    )
