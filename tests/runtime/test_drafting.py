"""Answers with drafts are the answers without, whatever is asked and whatever runs beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from qwink.engine.base import Traits
from qwink.errors import OptionError
from qwink.native import capabilities
from qwink.runtime import costs
from qwink.runtime.drafting import DraftHints, Drafting
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.types import Event, Message, Result, TokenLogprob
from tests.runtime.exact import exact_model

needs_kernels = pytest.mark.skipif(
    capabilities().kernels == "onnxruntime", reason="no kernels for this processor"
)

# What may be asked, besides a seed; greedy where there is no temperature.
STYLES: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.7},
    {"temperature": 1.5, "top_p": 0.9},
    {"repetition_penalty": 1.3},
    {"temperature": 0.5, "presence_penalty": 0.5, "frequency_penalty": 0.3},
    {"temperature": 0.3, "top_k": 5, "stop": ("e", "the")},
    {"stop": ("a",)},
    {"max_tokens": 2},
)


@pytest.fixture(scope="module")
def model(tiny_checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Model:
    return exact_model(tiny_checkpoint[0], tmp_path_factory.mktemp("drafts") / "balanced")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows seem to cost nothing, so that as many drafts as can be are run, however unlikely."""
    monkeypatch.setattr(costs.StepCosts, "extra", lambda *_: 0.0)


Told = tuple[Result, list[TokenLogprob]]


def run(vlm: VLM, asked: Sequence[tuple[str, dict[str, Any]]], hints: DraftHints) -> list[Told]:
    """Submit questions together; their results and logprobs."""
    inboxes = []
    for question, options in asked:
        inboxes.append(SimpleQueue[Event | Exception]())
        turns = [Message("user", (question,))]
        _, sampling = vlm.split_options(options)
        request = vlm.prepare(turns, ImageOptions(), sampling, 2, hints=hints)
        vlm.scheduler.submit(request, inboxes[-1].put)
    return [_whole(inbox) for inbox in inboxes]


def _whole(inbox: SimpleQueue[Event | Exception]) -> Told:
    logprobs: list[TokenLogprob] = []
    while True:
        event = inbox.get(timeout=60)
        if isinstance(event, Exception):
            raise event
        logprobs += event.logprobs
        if event.result is not None:
            return event.result, logprobs


def same(one: Told, two: Told) -> bool:
    """Text, end, number of tokens, and all log-probabilities to the last bit."""
    facts = [(r.text, r.finish_reason, r.usage.completion_tokens, found) for r, found in (one, two)]
    return facts[0] == facts[1]


def answers(model: Model, batches: Sequence[Any], **options: Any) -> Iterator[list[Told]]:
    with VLM(model, **options) as vlm:
        for batch, hints in batches:
            yield run(vlm, batch, hints)


@needs_kernels
def test_drafts_change_no_answer(model: Model, eager: None) -> None:
    """In batches of up to eight, each style with many seeds, in turns and again."""
    questions = [
        (f"What is {seed % 5}? {seed % 5}", {"seed": seed % 11, **STYLES[seed % len(STYLES)]})
        for seed in range(120)
    ]
    batches, start = [], 0
    for size in (1, 8, 3, 1, 5, 2, 8, 4, 1, 7) * 3:
        hints = DraftHints(prediction="What is the total of this receipt?" if size == 3 else "")
        batches.append((questions[start : start + size], hints))
        start += size
    plain = list(answers(model, batches, speculate="off"))
    drafted = list(answers(model, batches, speculate="auto"))
    pairs = [
        pair for one, two in zip(plain, drafted, strict=True) for pair in zip(one, two, strict=True)
    ]
    assert len(pairs) == 120
    assert all(same(*pair) for pair in pairs)
    usage = [two[0].usage for _, two in pairs]
    assert sum(one.accepted_prediction_tokens for one in usage) > 200
    assert sum(one.rejected_prediction_tokens for one in usage) > 200
    for one, two in pairs:
        saved = one[0].timings.num_steps - two[0].timings.num_steps
        assert two[0].usage.accepted_prediction_tokens - saved in (0, 1)
        assert one[0].usage.rejected_prediction_tokens == 0


@needs_kernels
def test_an_answer_again_takes_fewer_steps(model: Model, eager: None) -> None:
    """The same question, or the answer itself as the prediction."""
    asked = [("Tell me", {"temperature": 1.2, "seed": 5})]
    again = [("Tell me", {"temperature": 1.2, "seed": 5})]
    (first,), (second,) = answers(model, [(asked, DraftHints()), (again, DraftHints())])
    assert second[0].text == first[0].text
    assert second[0].timings.num_steps < first[0].timings.num_steps / 3
    batches = [(asked, DraftHints("mine")), (asked, DraftHints("yours"))]
    (first,), (other,) = answers(model, batches)
    assert other[0].timings.num_steps == first[0].timings.num_steps, "scopes are apart"


@needs_kernels
def test_a_prediction_is_a_draft(model: Model, eager: None) -> None:
    """Of six answers, since tokens of random answers are not always those of their texts."""
    before = after = accepted = 0
    for number in range(6):
        asked: list[tuple[str, dict[str, Any]]] = [(f"Tell me {number}", {})]
        ((first,),) = answers(model, [(asked, DraftHints())])
        ((second,),) = answers(model, [(asked, DraftHints(prediction=first[0].text))])
        assert second[0].text == first[0].text
        before += first[0].timings.num_steps
        after += second[0].timings.num_steps
        accepted += second[0].usage.accepted_prediction_tokens
    assert after < before
    assert accepted > 6


def test_engines_that_are_not_exact_draft_nothing(vlm: VLM) -> None:
    """Those of the fixture round differently when rows run together."""
    assert vlm.drafting.why_off is not None
    assert "change each other's rounding" in vlm.drafting.about
    result = vlm.ask(question="Again", max_tokens=6)
    assert result.timings.num_steps == result.usage.completion_tokens - 1
    assert result.usage.accepted_prediction_tokens == 0


def test_options(model: Model) -> None:
    with pytest.raises(OptionError, match="speculate is 'on'; it must be auto or off"):
        VLM(model, speculate="on")  # type: ignore[arg-type]
    exact = Traits(cheap_rows=8, invariant=True)
    assert Drafting(exact, model.tokenizer).why_off is None
    assert Drafting(exact, model.tokenizer, "off").about == "off: as chosen"
    slow = Traits(cheap_rows=1, invariant=True)
    assert "as long as the first" in Drafting(slow, model.tokenizer).about
