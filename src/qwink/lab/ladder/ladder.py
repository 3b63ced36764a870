"""Runs the rungs one after the other; compares each with the one before and with the first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qwink.lab.facts import PACKAGES
from qwink.lab.ladder import job, onnx_service
from qwink.lab.ladder.answers import Quality, RungAnswer, compare, count_correct
from qwink.lab.ladder.job import ServiceJob
from qwink.lab.ladder.questions import Question, Workload
from qwink.lab.ladder.rungs import Ours, Plain, Rung
from qwink.lab.record import Record, record
from qwink.model.artifact import Artifact

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds over a workload's requests: mean and 95th percentile, and means of the parts.

    `per_answer_ms` is the time of the whole workload divided by the number of its answers.
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

    `before` are the previous rung's times on this rung's workload, `gain` is their time per answer
    divided by this rung's; `gain_over_first` is the product of the gains so far. `quality` compares
    with the first rung, `step_quality` with the previous one. `right` of `known` answers are true.
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
class LadderPlan:
    """What to run. `artifacts` map recipes to models; `settings` are copied into the result."""

    checkpoint: Path
    rungs: tuple[Rung, ...]
    workloads: Mapping[Workload, Sequence[Question]]
    artifacts: Mapping[str, Artifact]
    settings: Mapping[str, Any]
    users: int
    threads: int | None
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class LadderResult:
    """The measurements of `qwink bench ladder`. `left_out` maps missing rungs to the reason."""

    model: str
    settings: dict[str, Any]
    rungs: tuple[RungResult, ...]
    left_out: dict[str, str]


def climb(plan: LadderPlan, report: Report = lambda _: None) -> Record[LadderResult]:
    """Run every rung that this machine can run. Raises QwinkError when one of them fails."""
    accelerator = job.accelerator(plan.device)
    left_out: dict[str, str] = {}
    results: list[RungResult] = []
    first: Sequence[RungAnswer] = ()
    previous: Rung | None = None
    known: Sequence[RungAnswer] = ()  # the previous rung's answers
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
    result = LadderResult(plan.checkpoint.name, dict(plan.settings), tuple(results), left_out)
    return record("ladder", result, (*PACKAGES, "torch", "transformers"), accelerator)


def _run(plan: LadderPlan, rung: Rung, workload: Workload, report: Report) -> list[RungAnswer]:
    questions, service = plan.workloads[workload], rung.service
    numbers = itertools.count(1)

    def listen(answer: RungAnswer) -> None:
        report(f"{rung.key} {next(numbers)} of {len(questions)}: {answer.total_ms / 1e3:.2f} s")

    if isinstance(service, Ours):
        users = plan.users if workload == "users" else 1
        with onnx_service.running(plan.artifacts[service.recipe], service, plan.threads) as vlm:
            return onnx_service.answer_all(vlm, questions, service.max_tokens, users, listen)
    answers = []
    for answer in job.run(
        ServiceJob(str(plan.checkpoint), plan.device, plan.threads, service, tuple(questions))
    ):
        answers.append(answer)
        listen(answer)
    return answers


def _result(
    plan: LadderPlan,
    rung: Rung,
    answers: Sequence[RungAnswer],
    before: Sequence[RungAnswer],
    first: Sequence[RungAnswer],
    reached: float,
) -> RungResult:
    times, earlier = summarise_times(answers), summarise_times(before) if before else None
    gain = earlier.per_answer_ms / times.per_answer_ms if earlier else None
    truths = {
        question.name: question.answer
        for question in plan.workloads[rung.workload]
        if question.answer is not None
    }
    found, known = count_correct(answers, truths)
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


def summarise_times(answers: Sequence[RungAnswer]) -> Times:
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
