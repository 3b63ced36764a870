"""The rungs one after the other, each compared with the one before and with the first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qwink.bench.facts import PACKAGES, Facts, collect
from qwink.bench.ladder import job, onnx_service
from qwink.bench.ladder.answers import Answer
from qwink.bench.ladder.job import Job
from qwink.bench.ladder.quality import Quality, compare, right
from qwink.bench.ladder.questions import Question, Workload
from qwink.bench.ladder.rungs import Ours, Plain, Rung
from qwink.model.artifact import Artifact

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds over a workload's requests: their mean and 95th percentile, and parts of it.

    `per_answer_ms` is the time of the whole workload over its answers: the mean for one user.
    """

    count: int
    mean_ms: float
    p95_ms: float
    per_answer_ms: float
    load_ms: float
    prepare_ms: float
    first_token_ms: float
    image_tokens: float
    answer_tokens: float


@dataclass(frozen=True, slots=True)
class RungResult:
    """What a rung measured.

    `before` are the times of the rung before on this rung's workload, `gain` its time per answer
    over this one's; `gain_over_first` multiplies the gains up to here. `quality` compares with the
    first rung, `step_quality` with the one before.
    """

    key: str
    name: str
    service: dict[str, Any]
    workload: Workload
    times: Times
    before: Times | None
    gain: float | None
    gain_over_first: float
    quality: Quality | None
    step_quality: Quality | None
    right: int
    known: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to climb. `workloads` hold the questions; `artifacts` each recipe's model."""

    checkpoint: Path
    rungs: tuple[Rung, ...]
    workloads: Mapping[Workload, Sequence[Question]]
    artifacts: Mapping[str, Artifact]
    settings: Mapping[str, Any]  # for the record
    users: int
    threads: int | None
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class LadderResult:
    """All of `qwink bench ladder`. `left_out` says of rungs why they are missing."""

    kind: str
    facts: Facts
    model: str
    settings: dict[str, Any]
    rungs: tuple[RungResult, ...]
    left_out: dict[str, str]


def climb(plan: Plan, report: Report = lambda _: None) -> LadderResult:
    """Run every rung that can be run here. Raises QwinkError when one of them breaks off."""
    accelerator = job.accelerator(plan.device)
    left_out: dict[str, str] = {}
    results: list[RungResult] = []
    first: Sequence[Answer] = ()
    previous: Rung | None = None
    known: Sequence[Answer] = ()  # the previous rung's answers
    for rung in plan.rungs:
        why = job.missing() if isinstance(rung.service, Plain) else None
        if why is not None:
            left_out[rung.key] = why
            continue
        if previous is not None and previous.workload != rung.workload:
            report(f"{previous.key} once more, on the workload of {rung.key}")
            known = _run(plan, previous, rung.workload, report)
        report(f"{rung.key} {rung.name}")
        answers = _run(plan, rung, rung.workload, report)
        first = first or answers
        reached = results[-1].gain_over_first if results else 1.0
        results.append(_result(plan, rung, answers, known, first, reached))
        previous, known = rung, answers
    facts = collect((*PACKAGES, "torch", "transformers"), accelerator)
    return LadderResult(
        "ladder", facts, plan.checkpoint.name, dict(plan.settings), tuple(results), left_out
    )


def _run(plan: Plan, rung: Rung, workload: Workload, report: Report) -> list[Answer]:
    questions, service = plan.workloads[workload], rung.service
    numbers = itertools.count(1)

    def listen(answer: Answer) -> None:
        report(f"{rung.key} {next(numbers)} of {len(questions)}: {answer.total_ms / 1e3:.2f} s")

    if isinstance(service, Ours):
        users = plan.users if workload == "users" else 1
        with onnx_service.running(plan.artifacts[service.recipe], service, plan.threads) as vlm:
            return onnx_service.answer_all(vlm, questions, service.max_tokens, users, listen)
    answers = []
    for answer in job.run(
        Job(str(plan.checkpoint), plan.device, plan.threads, service, tuple(questions))
    ):
        answers.append(answer)
        listen(answer)
    return answers


def _result(
    plan: Plan,
    rung: Rung,
    answers: Sequence[Answer],
    before: Sequence[Answer],
    first: Sequence[Answer],
    reached: float,
) -> RungResult:
    times, earlier = summarise_times(answers), summarise_times(before) if before else None
    gain = earlier.per_answer_ms / times.per_answer_ms if earlier else None
    truths = {
        question.name: question.answer
        for question in plan.workloads[rung.workload]
        if question.answer is not None
    }
    found, known = right(answers, truths)
    return RungResult(
        rung.key,
        rung.name,
        asdict(rung.service),
        rung.workload,
        times,
        earlier,
        None if gain is None else round(gain, 3),
        round(reached * (gain or 1.0), 3),
        None if first is answers else compare(answers, first),
        compare(answers, before) if before else None,
        found,
        known,
    )


def summarise_times(answers: Sequence[Answer]) -> Times:
    """Percentiles interpolate linearly."""

    def mean(name: str) -> float:
        return round(float(np.mean([getattr(answer, name) for answer in answers])), 2)

    return Times(
        len(answers),
        mean("total_ms"),
        round(float(np.percentile([answer.total_ms for answer in answers], 95)), 2),
        mean("per_answer_ms"),
        mean("load_ms"),
        mean("prepare_ms"),
        mean("first_token_ms"),
        mean("image_tokens"),
        round(float(np.mean([len(answer.tokens) for answer in answers])), 2),
    )
