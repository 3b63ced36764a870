"""Known answers by several ways of generating them, in turns; see `replay`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image

from qwink.errors import OptionError
from qwink.inputs.budget import TOKEN_PIXELS
from qwink.lab.extract.corpus import KINDS, RANDOM_TOKENS, Answer, Kind, answers
from qwink.lab.extract.replay import replay
from qwink.lab.pictures.sample import sample_picture, variant
from qwink.lab.record import Record, record
from qwink.lab.statistics import Summary, paired_ratio
from qwink.runtime.listening import listen
from qwink.runtime.messages import user_message
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import Result

Arm = Literal["off", "forced", "drafts", "both"]
ARMS: tuple[Arm, ...] = ("off", "forced", "drafts", "both")
_SHAPED: tuple[Arm, ...] = ("forced", "both")
_DRAFTED: tuple[Arm, ...] = ("drafts", "both")


@dataclass(frozen=True, slots=True)
class ExtractPlan:
    """What to measure.

    `arms` begin with off. `counts`: how many answers of each kind, all of one that is left out.
    """

    model: Model
    recipe: str
    threads: int | None
    arms: tuple[Arm, ...] = ARMS
    counts: Mapping[Kind, int | None] | None = None
    image_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Run:
    """One answer by one arm. The first token comes before the `steps`."""

    answer: str
    arm: Arm
    tokens: int
    steps: int
    accepted: int
    rejected: int
    generate_ms: float
    total_ms: float


@dataclass(frozen=True, slots=True)
class ArmResult:
    """All answers of a kind by one arm.

    `generate_gain` and `total_gain`: the time of arm off divided by this arm's, of all answers
    together; the summaries are of the answers' own ratios.
    """

    kind: Kind
    arm: Arm
    answers: int
    tokens: int
    steps: int
    accepted: int
    rejected: int
    tokens_per_step: float
    generate_ms: float
    total_ms: float
    generate_gain: float
    total_gain: float
    generate_gains: Summary
    total_gains: Summary


@dataclass(frozen=True, slots=True)
class ExtractResult:
    """The measurements of `qwink bench extract`."""

    model: str
    recipe: str
    threads: int | None
    image_tokens: int
    arms: tuple[ArmResult, ...]
    runs: tuple[Run, ...]


def measure_extract(
    plan: ExtractPlan, report: Callable[[str], None] = lambda _: None
) -> Record[ExtractResult]:
    """Replay the answers of each kind. For every answer the arms take turns, each first in turn.

    Each arm has caches of its own, and sees pictures that no other one has seen. Random text has no
    shape, nor have pages: for these, arms with a shape are left out.
    Raises OptionError if the arms do not begin with off, or the model takes no such answers.
    """
    if plan.arms[:1] != ("off",):
        raise OptionError("the first arm must be off, with which the others are compared")
    results: list[ArmResult] = []
    runs: list[Run] = []
    for kind in KINDS:
        count = (plan.counts or {}).get(kind)
        if count == 0:
            continue
        arms = [arm for arm in plan.arms if kind == "json" or arm not in _SHAPED]
        found = _measure_kind(plan, arms, answers(kind, count), report)
        results += [_summary(kind, arm, found) for arm in arms]
        runs += [run for arm in arms for run in found[arm]]
    result = ExtractResult(
        plan.model.name, plan.recipe, plan.threads, plan.image_tokens, tuple(results), tuple(runs)
    )
    return record("extract", result)


def _measure_kind(
    plan: ExtractPlan, arms: Sequence[Arm], known: Sequence[Answer], report: Callable[[str], None]
) -> dict[Arm, list[Run]]:
    limits = Limits(max_running=1, keep_prompts=False)
    vlms: dict[Arm, VLM] = {}
    found: dict[Arm, list[Run]] = {arm: [] for arm in arms}
    try:
        for arm in arms:
            speculate: Literal["auto", "off"] = "auto" if arm in _DRAFTED else "off"
            vlms[arm] = VLM(plan.model, limits=limits, speculate=speculate)
            reason = vlms[arm].drafting.why_off
            if arm in _DRAFTED and reason is not None:
                raise OptionError(f"there are no drafts: {reason}; leave arm {arm} out")
        for arm in arms:  # to warm up; nothing of it is kept as an earlier answer
            _replay(plan, vlms[arm], "off", known[0], -1 - ARMS.index(arm))
        for number, answer in enumerate(known):
            report(f"{answer.name} ({number + 1} of {len(known)})")
            first = number % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                place = number * len(ARMS) + ARMS.index(arm)
                found[arm].append(_replay(plan, vlms[arm], arm, answer, place))
    finally:
        for vlm in vlms.values():
            vlm.close()
    return found


def _replay(plan: ExtractPlan, vlm: VLM, arm: Arm, answer: Answer, place: int) -> Run:
    """`place` numbers the picture, which is another one each time."""
    ids = _tokens(answer, vlm, plan)
    area = plan.image_tokens * TOKEN_PIXELS
    options: dict[str, Any] = {"min_pixels": area, "max_pixels": area, "max_tokens": len(ids) + 1}
    if arm in _SHAPED:
        options["schema"] = answer.schema
    side = round(area**0.5 / 32) * 32
    picture = variant(sample_picture().resize((side, side), Image.Resampling.BILINEAR), place + 99)
    chosen, sampling = vlm.split_options(options)
    question = answer.question if place >= 0 else f"{answer.question} Once more."
    request = vlm.prepare([user_message(picture, question, chosen.task)], chosen, sampling)
    replay(request, vlm.tokenizer, ids)
    result: Result | None = None
    for event in listen(vlm.scheduler, request):
        result = event.result
    assert result is not None, "a stream ends with its result or raises"
    if answer.text is not None and result.text != answer.text:
        raise OptionError(f"{answer.name} was not replayed; the tokenizer cannot spell it")
    usage, timings = result.usage, result.timings
    return Run(
        answer.name,
        arm,
        usage.completion_tokens,
        timings.num_steps,
        usage.accepted_prediction_tokens,
        usage.rejected_prediction_tokens,
        timings.generate_ms,
        timings.total_ms,
    )


def _tokens(answer: Answer, vlm: VLM, plan: ExtractPlan) -> list[int]:
    """The answer's tokens. Random ones are drawn from the ordinary tokens of the vocabulary."""
    if answer.text is not None:
        ids = vlm.tokenizer.encode_text(answer.text)
    else:
        smallest = min(vlm.tokenizer.eos_ids)
        random = np.random.default_rng([ord(letter) for letter in answer.name])
        ids = random.integers(0, min(smallest, vlm.tokenizer.vocab_size), RANDOM_TOKENS).tolist()
    if len(ids) + plan.image_tokens + 300 > vlm.context:
        raise OptionError(
            f"{answer.name} has {len(ids)} tokens, too many for the model's context of "
            f"{vlm.context}; choose another checkpoint or fewer --image-tokens"
        )
    return ids


def _summary(kind: Kind, arm: Arm, found: Mapping[Arm, Sequence[Run]]) -> ArmResult:
    runs, off = found[arm], found["off"]

    def total(name: str, among: Sequence[Run] = runs) -> Any:
        return sum(getattr(run, name) for run in among)

    def ratios(name: str) -> Summary:
        times = [[getattr(run, name) for run in among] for among in (off, runs)]
        return paired_ratio(*times)

    return ArmResult(
        kind,
        arm,
        len(runs),
        total("tokens"),
        total("steps"),
        total("accepted"),
        total("rejected"),
        round((total("tokens") - len(runs)) / total("steps"), 3),
        round(total("generate_ms"), 1),
        round(total("total_ms"), 1),
        round(total("generate_ms", off) / total("generate_ms"), 3),
        round(total("total_ms", off) / total("total_ms"), 3),
        ratios("generate_ms"),
        ratios("total_ms"),
    )
