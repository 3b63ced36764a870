"""Whole comparisons, from Python."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest

from qwink.engine.base import Engine
from qwink.errors import ImageError
from qwink.lab.verify import run
from qwink.lab.verify.run import VerifyOptions, verify
from qwink.lab.verify.samples import built_in_samples, samples_in
from qwink.runtime.models import find_artifact, load
from qwink.runtime.vlm import VLM
from qwink.settings import Settings

SAMPLES = built_in_samples()[:2]


def test_one_model_is_in_memory_at_a_time(
    nano_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[weakref.ref[Engine]] = []

    def watched(*arguments: Any, **options: Any) -> VLM:
        assert [engine for engine in engines if engine() is not None] == []
        vlm = load(*arguments, **options)
        engines.append(weakref.ref(vlm.engine))
        return vlm

    monkeypatch.setattr(run, "load", watched)
    recipes = ("exact", "quality", "fast")
    exact, *others = (find_artifact("nano", name, nano_settings) for name in recipes)
    told: list[tuple[str, int, int]] = []
    found = verify(
        exact, others, SAMPLES, VerifyOptions(), nano_settings, lambda *step: told.append(step)
    )
    assert len(engines) == 3
    assert [recipe.recipe for recipe in found.recipes] == ["quality", "fast"]
    assert told == [(name, done, 2) for name in recipes for done in (1, 2)]


def test_exact_beside_itself_has_no_noise(nano_settings: Settings) -> None:
    exact = find_artifact("nano", "exact", nano_settings)
    (found,) = verify(exact, [exact], SAMPLES, VerifyOptions(), nano_settings).recipes
    assert found.verdict == "safe"
    assert found.top1_agreement == 1
    assert found.num_same_answers == 2
    assert min(found.snr_db, *found.snr_db_at.values()) > 90
    assert found.kl_nats < 1e-6


def test_pictures_that_cannot_be_used(nano_settings: Settings, pictures: Path) -> None:
    exact = find_artifact("nano", "exact", nano_settings)
    samples = samples_in(pictures)
    found = verify(exact, [exact], samples, VerifyOptions(), nano_settings)
    assert {picture.name for picture in found.skipped} == {"cut.png", "notes.jpg"}
    assert {picture.name for picture in found.pictures} == {"line-date.png", "line-total.png"}
    bad = [sample for sample in samples if sample.name in ("cut.png", "notes.jpg")]
    with pytest.raises(ImageError, match="no picture could be used"):
        verify(exact, [exact], bad, VerifyOptions(), nano_settings)
