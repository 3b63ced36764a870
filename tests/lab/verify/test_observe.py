"""Observations of nano, compared with its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwink.lab.verify.observe import Observation, observe, observe_along
from qwink.lab.verify.samples import Sample, built_in_samples
from qwink.runtime.messages import user_message
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.request import Request
from qwink.runtime.vlm import VLM
from qwink.types import SamplingParams
from tests.lab.verify.conftest import LoadNano

SAMPLES = {sample.name: sample for sample in built_in_samples()}
MAX_TOKENS = 24


def request(vlm: VLM, sample: Sample) -> Request:
    message = user_message([sample.image], sample.question, "auto")
    return vlm.prepare([message], ImageOptions(strips="off"), SamplingParams(max_tokens=MAX_TOKENS))


def asked(vlm: VLM, sample: Sample) -> str:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": MAX_TOKENS, "strips": "off"}
    return vlm.ask(sample.image, sample.question, **options).text


def test_a_model_led_along_its_own_answer_does_not_differ(load_nano: LoadNano) -> None:
    vlm, sample = load_nano("exact"), SAMPLES["line-total"]
    alone = observe(vlm, request(vlm, sample))
    led = observe_along(vlm, request(vlm, sample), alone.ids.tolist())
    assert alone.answer == led.answer == asked(vlm, sample) == "Total 42.50"
    assert (alone.logits.argmax(-1) == led.logits.argmax(-1)).all()
    np.testing.assert_allclose(led.logits, alone.logits, atol=1e-4)
    assert list(led.states) == list(alone.states)
    for place, state in alone.states.items():
        np.testing.assert_allclose(led.states[place], state, atol=1e-4, err_msg=place)


@pytest.mark.parametrize("name", ["line-code", "page", "table"])
def test_its_own_answer_is_what_it_says_when_asked(load_nano: LoadNano, name: str) -> None:
    exact, small = load_nano("exact"), load_nano("small")
    reference = observe(exact, request(exact, SAMPLES[name]))
    led = observe_along(small, request(small, SAMPLES[name]), reference.ids.tolist())
    assert led.answer == asked(small, SAMPLES[name])
    assert len(led.logits) == len(led.ids) == len(reference.ids)
    if name == "page":  # too hard for nano, so that the recipes' answers differ
        assert led.answer != reference.answer


def test_places_cover_the_model_in_order(load_nano: LoadNano) -> None:
    vlm = load_nano("exact")
    found = observe(vlm, request(vlm, SAMPLES["line-total"]))
    assert list(found.states) == [
        "vision, tap after layer 2 of 6",
        "vision, tap after layer 4 of 6",
        "vision, output",
        *(f"prompt, text {name}" for name in ("layers 1-2", "layer 3", "layer 4")),
        *(f"answer, text {name}" for name in ("layers 1-2", "layer 3", "layer 4")),
    ]
    answered = found.states["answer, text layers 1-2"]
    text = vlm.engine.config.text
    assert answered.shape == (4, text.num_kv_heads, len(found.ids) - 1, text.head_dim)
    assert all(np.isfinite(state).all() and state.any() for state in found.states.values())


def test_rounding_shows_where_it_happens(load_nano: LoadNano) -> None:
    """balanced and quality share prefill and vision; only their decoding differs."""
    exact = load_nano("exact")
    reference = observe(exact, request(exact, SAMPLES["line-total"]))
    seen = {}
    for recipe in ("quality", "balanced"):
        vlm = load_nano(recipe)
        ids = reference.ids.tolist()
        seen[recipe] = observe_along(vlm, request(vlm, SAMPLES["line-total"]), ids).states
    for place, state in seen["quality"].items():
        same = np.array_equal(state, seen["balanced"][place])
        assert same != place.startswith("answer"), place


def test_an_answer_of_one_token_has_none_after_it(load_nano: LoadNano) -> None:
    vlm = load_nano("exact")
    message = user_message([SAMPLES["circle"].image], "What shape is it?", "auto")
    short = vlm.prepare([message], ImageOptions(strips="off"), SamplingParams(max_tokens=1))
    found = observe(vlm, short)
    assert len(found.ids) == 1
    assert not [place for place in found.states if place.startswith("answer")]


def test_an_observation_survives_the_disk(load_nano: LoadNano, tmp_path: Path) -> None:
    vlm = load_nano("exact")
    found = observe(vlm, request(vlm, SAMPLES["circle"]))
    found.save(tmp_path / "circle.npz")
    again = Observation.load(tmp_path / "circle.npz")
    assert again.answer == found.answer
    np.testing.assert_array_equal(again.ids, found.ids)
    np.testing.assert_array_equal(again.logits, found.logits)
    assert list(again.states) == list(found.states)
    for place, state in found.states.items():
        np.testing.assert_array_equal(again.states[place], state)
