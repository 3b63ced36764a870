"""Comparison of answers and pictures, on cases computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qwink.inputs.patches import patchify
from qwink.lab.ladder.answers import RungAnswer, compare, count_correct, unpatchify
from qwink.lab.ladder.ladder import summarise_times

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (64, 96, 3), np.uint8)
ANSWER = RungAnswer(
    name="sign",
    load_ms=10.0,
    prepare_ms=2.0,
    first_token_ms=30.0,
    total_ms=100.0,
    per_answer_ms=50.0,
    image_tokens=6,
    tokens=(1, 2, 3, 4),
    text="It says Stop.",
    logits=np.arange(8, dtype=np.float32),
    image=PIXELS,
)


def test_patches_back_into_the_picture() -> None:
    patches, grid = patchify(PIXELS)
    assert np.array_equal(unpatchify(patches, grid), PIXELS)


def test_an_answer_is_like_itself() -> None:
    quality = compare([ANSWER], [ANSWER])
    assert quality is not None
    assert (quality.count, quality.first_token, quality.answer) == (1, 1.0, 1.0)
    assert (quality.logits, quality.psnr_db, quality.ssim) == (1.0, None, 1.0)


def test_a_different_answer() -> None:
    brighter = (PIXELS.astype(np.int16) // 2 + 64).astype(np.uint8)
    other = replace(ANSWER, tokens=(9, 2), logits=-ANSWER.logits, image=brighter)
    quality = compare([other], [ANSWER])
    assert quality is not None
    assert (quality.first_token, quality.answer, quality.logits) == (0.0, 0.0, -1.0)
    assert quality.psnr_db == pytest.approx(16.8, abs=0.2)  # a difference of 64 at most
    assert 0.5 < quality.ssim < 0.95


def test_a_smaller_picture_is_enlarged() -> None:
    smooth = np.tile(np.arange(96, dtype=np.uint8)[:, None], (64, 1, 3))
    small = replace(ANSWER, image=smooth[::2, ::2])
    quality = compare([small], [replace(ANSWER, image=smooth)])
    assert quality is not None
    assert quality.psnr_db is not None
    assert quality.psnr_db > 40


def test_only_questions_that_both_answered_count() -> None:
    assert compare([ANSWER], [replace(ANSWER, name="other")]) is None
    assert compare([], [ANSWER]) is None


def test_true_answers() -> None:
    known = {"sign": "stop", "page": "12"}
    assert count_correct([ANSWER, replace(ANSWER, name="cat")], known) == (1, 1)
    assert count_correct([replace(ANSWER, text="Go")], known) == (0, 1)


def test_times() -> None:
    answers = [replace(ANSWER, total_ms=float(ms)) for ms in range(101)]
    times = summarise_times(answers)
    assert (times.count, times.mean_ms, times.p95_ms) == (101, 50, 95)
    assert (times.per_answer_ms, times.load_ms, times.prepare_ms) == (50, 10, 2)
    assert (times.image_tokens, times.answer_tokens) == (6, 4)
