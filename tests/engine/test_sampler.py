from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from qwink.engine.sampler import Sampler, validate
from qwink.errors import GenerationError, OptionError
from qwink.types import SamplingParams

V = 40


def _logits(seed: int = 0, size: int = V) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 2, size).astype(np.float32)


def _reference(
    logits: NDArray[np.float32], params: SamplingParams, forbidden: list[int]
) -> NDArray[np.float64]:
    """The obvious way, with a full sort."""
    scores = logits.astype(np.float64)
    scores[forbidden] = -np.inf
    scores /= params.temperature
    order = np.argsort(-scores)
    if params.top_k:
        scores[order[params.top_k :]] = -np.inf
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    keep = np.zeros(len(scores), dtype=bool)
    mass = 0.0
    for token in order:
        if mass >= params.top_p:
            break
        keep[token] = probabilities[token] >= params.min_p * probabilities.max()
        mass += probabilities[token]
    probabilities[~keep] = 0
    normalised: NDArray[np.float64] = probabilities / probabilities.sum()
    return normalised


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_k=5),
        SamplingParams(temperature=1.3, top_p=0.8),
        SamplingParams(temperature=1.0, top_p=1e-9),
        SamplingParams(temperature=1.0, min_p=0.1),
        SamplingParams(temperature=1.5, top_k=10, top_p=0.9, min_p=0.05),
        SamplingParams(temperature=1.0, top_k=1000),
    ],
)
def test_distribution(params: SamplingParams) -> None:
    forbidden = [3, 17]
    logits = _logits()
    expected = _reference(logits, params, forbidden)
    sampler = Sampler(replace(params, seed=1), forbidden, V)
    num_draws = 20_000
    counts = np.bincount([sampler.sample(logits) for _ in range(num_draws)], minlength=V)
    assert not counts[expected == 0].any()
    # Five standard deviations of a binomial, for each token.
    spread = 5 * np.sqrt(expected * (1 - expected) * num_draws) + 1
    assert np.all(np.abs(counts - expected * num_draws) <= spread)


@pytest.mark.parametrize("size", [300, 5000, 30_000])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999])
def test_nucleus_of_large_vocabularies(size: int, top_p: float) -> None:
    # Flat distributions need more candidates than are sorted at first.
    params = SamplingParams(temperature=2.0, top_p=top_p, seed=0)
    logits = _logits(size, size)
    allowed = set(np.flatnonzero(_reference(logits, params, [])).tolist())
    sampler = Sampler(params, [], size)
    assert {sampler.sample(logits) for _ in range(300)} <= allowed
    ids, weights = sampler._candidates(logits.copy())
    assert set(ids.tolist()) == allowed
    assert weights.max() == 1


def test_candidates_equal_transformers() -> None:
    processors: list[Any] = [
        transformers.RepetitionPenaltyLogitsProcessor(1.3),
        transformers.TemperatureLogitsWarper(0.8),
        transformers.TopKLogitsWarper(12),
        transformers.TopPLogitsWarper(0.85),
        transformers.MinPLogitsWarper(0.08),
    ]
    params = SamplingParams(
        temperature=0.8, top_k=12, top_p=0.85, min_p=0.08, repetition_penalty=1.3
    )
    prompt, generated = np.array([1, 2, 3, 3]), [4, 5, 5, 2]
    for seed in range(50):
        logits = _logits(seed)
        scores = torch.from_numpy(logits.copy())[None]
        seen = torch.tensor([[*prompt.tolist(), *generated]])
        for processor in processors:
            scores = processor(seen, scores)
        expected = torch.softmax(scores[0].double(), 0).numpy()
        ours = logits.copy()
        sampler = Sampler(params, [], V)
        sampler._penalise(ours, generated, prompt)
        ids, weights = sampler._candidates(ours)
        found = np.zeros(V)
        found[ids] = weights / weights.sum()
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_greedy_and_forbidden() -> None:
    logits = np.zeros(V, np.float32)
    logits[[7, 9]] = 5, 4
    before = logits.copy()
    assert Sampler(SamplingParams(), [], V).sample(logits) == 7
    assert Sampler(SamplingParams(), [7, V + 3], V).sample(logits) == 9
    assert np.array_equal(logits, before)
    assert Sampler(SamplingParams(temperature=1e-310), [], V).sample(logits) == 7
    for temperature in (0.0, 1e-310, 1.0, 100.0):
        sampler = Sampler(SamplingParams(temperature=temperature, seed=0), np.arange(1, V), V)
        assert {sampler.sample(logits) for _ in range(20)} == {0}


def test_presence_and_frequency() -> None:
    params = SamplingParams(presence_penalty=1.0, frequency_penalty=0.5)
    sampler = Sampler(params, [], V)
    logits = np.zeros(V, np.float32)
    logits[[1, 2]] = 2.2, 0.1
    assert sampler.sample(logits, [1, 1], [1, 1, 1]) == 1  # 2.2 - 1 - 2 * 0.5
    assert sampler.sample(logits, [1, 1, 1], []) == 2
    assert sampler.sample(logits, [], [1] * 9) == 1  # the prompt does not count


def test_seeds() -> None:
    def draw(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingParams(temperature=1.5, seed=seed), [], V)
        return [sampler.sample(_logits(step)) for step in range(30)]

    assert draw(7) == draw(7) != draw(8)
    assert draw(-1) == draw(-1)
    assert draw(None) != draw(None)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_values_that_are_not_numbers(bad: float, temperature: float) -> None:
    logits = _logits()
    logits[5] = bad
    sampler = Sampler(SamplingParams(temperature=temperature), [], V)
    with pytest.raises(GenerationError, match="not numbers; check"):
        sampler.sample(logits)
    with pytest.raises(GenerationError):
        sampler.logprobs(logits, 0)
    with pytest.raises(GenerationError, match="no token"):
        sampler.sample(np.full(V, -np.inf, np.float32))
    with pytest.raises(ValueError, match="shape"):
        sampler.sample(logits[:-1])


def test_minus_infinity_is_never_drawn() -> None:
    logits = np.full(V, -np.inf, np.float32)
    logits[[2, 4]] = 0
    sampler = Sampler(SamplingParams(temperature=1.0, top_p=0.99, seed=0), [], V)
    assert {sampler.sample(logits) for _ in range(100)} == {2, 4}


def test_logprobs() -> None:
    logits = _logits()
    sampler = Sampler(SamplingParams(temperature=0.5, repetition_penalty=2.0), [0, 1], V)
    masked = torch.from_numpy(logits.copy()).double()
    masked[[0, 1]] = -torch.inf
    expected = torch.log_softmax(masked, 0).numpy()
    found = sampler.logprobs(logits, 5, 4)
    assert found.chosen == pytest.approx(expected[5], abs=1e-6)
    order = np.argsort(-expected)[:4]
    assert [token for token, _ in found.top] == order.tolist()
    np.testing.assert_allclose([value for _, value in found.top], expected[order], atol=1e-6)
    assert sampler.logprobs(logits, 5).top == ()
    assert len(sampler.logprobs(logits, 5, 1000).top) == V - 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("seed", 2**64),
        ("stop", ("a", "")),
        ("stop", "abc"),
    ],
)
def test_validation_names_the_option(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"^{name} is .*; it must be ") as caught:
        validate(replace(SamplingParams(), **{name: value}))
    assert "\n" not in str(caught.value)


def test_defaults_are_valid() -> None:
    validate(SamplingParams())
    validate(SamplingParams(seed=2**64 - 1, stop=("a",), top_k=20, top_p=0.8, min_p=1.0))
