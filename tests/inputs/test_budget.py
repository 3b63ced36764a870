from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from qwink.errors import OptionError
from qwink.inputs.budget import (
    QWEN3_VL_LIMITS,
    TEXT_DETAIL_THRESHOLD,
    TOKEN_PIXELS,
    Budget,
    choose_budget,
    fit,
    needs_picture,
    text_detail,
)
from qwink.types import TASKS, Picture, Task

Array = NDArray[np.uint8]


def written(width: int, height: int, size: int, ink: int = 0, paper: int = 255) -> Array:
    image = Image.new("L", (width, height), paper)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for top in range(4, height, round(size * 1.6)):
        draw.text((4, top), "The quick brown fox: 1,234.50 " * 9, font=font, fill=ink)
    return np.asarray(image.convert("RGB"))


def cloudy(width: int, height: int, roughness: float) -> Array:
    """A picture whose spectrum falls with frequency, as in photos."""
    rng = np.random.default_rng(0)
    radius = np.hypot(np.fft.fftfreq(height)[:, None] * height, np.fft.fftfreq(width) * width)
    radius[0, 0] = 1
    waves = np.exp(2j * np.pi * rng.random((height, width))) / radius**roughness
    field = np.fft.ifft2(waves).real
    grey = np.clip(128 + 50 * (field - field.mean()) / field.std(), 0, 255).astype(np.uint8)
    return np.repeat(grey[..., None], 3, axis=2)


def noisy(pixels: Array, sigma: float) -> Array:
    noise = np.random.default_rng(0).normal(0, sigma, (*pixels.shape[:2], 1))
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


def discs() -> Array:
    rng = np.random.default_rng(0)
    image = Image.new("RGB", (800, 600), (200, 220, 240))
    for x, y, radius, *colour in rng.integers(
        (0, 0, 20, 0, 0, 0), (800, 600, 150, 255, 255, 255), (30, 6)
    ):
        box = (int(x - radius), int(y - radius), int(x + radius), int(y + radius))
        ImageDraw.Draw(image).ellipse(box, fill=tuple(int(c) for c in colour))
    return np.asarray(image)


def picture(pixels: Array) -> Picture:
    return Picture(pixels, "0" * 64, (pixels.shape[1], pixels.shape[0]))


# --- text_detail


@pytest.mark.parametrize(
    "pixels",
    [
        written(896, 1152, 14),
        written(896, 1152, 32),
        written(2480, 3508, 46),  # a scan of 300 dpi
        written(448, 448, 10),
        written(256, 64, 20),
        written(800, 600, 18, ink=240, paper=20),
        written(800, 600, 18, ink=110, paper=200),
        noisy(written(600, 900, 18, ink=40, paper=230), 6),
    ],
)
def test_text_is_found(pixels: Array) -> None:
    assert text_detail(pixels) > 0.25


def test_a_line_of_text_in_a_photo_is_found() -> None:
    pixels = cloudy(800, 600, 1.5).copy()
    pixels[300:400, 100:700] = written(600, 100, 22)
    assert TEXT_DETAIL_THRESHOLD < text_detail(pixels) < 0.5


@pytest.mark.parametrize(
    "pixels",
    [
        cloudy(800, 600, 1.0),
        cloudy(800, 600, 1.5),
        cloudy(1500, 1200, 2.0),
        noisy(cloudy(800, 600, 1.5), 12),
        noisy(np.full((600, 800, 3), 128, np.uint8), 40),
        np.tile(np.linspace(0, 255, 800).astype(np.uint8)[None, :, None], (600, 1, 3)),
        discs(),
        noisy(discs(), 8),
        np.zeros((1, 1, 3), np.uint8),
        np.zeros((50, 20_000, 3), np.uint8),
    ],
)
def test_photos_noise_and_shapes_are_no_text(pixels: Array) -> None:
    assert text_detail(pixels) < TEXT_DETAIL_THRESHOLD / 2


def test_text_detail_looks_at_some_samples_of_a_large_picture() -> None:
    pixels = written(4000, 3000, 40)
    others = np.random.default_rng(0).integers(0, 256, pixels.shape, np.uint8)
    others[::6, ::6] = pixels[::6, ::6]  # 0.33 million samples
    assert text_detail(others) == text_detail(pixels)


# --- choose_budget


@pytest.mark.parametrize(
    ("question", "task"),
    [
        ("What is the total?", "ocr"),
        ("Read the sign.", "ocr"),
        ("What does it say?", "ocr"),
        ("Where is the total written?", "ocr"),
        ("这张发票的金额是多少？", "ocr"),
        ("图片上写着什么文字", "ocr"),
        ("Convert this page to Markdown", "document"),
        ("Extract the table", "document"),
        ("把表格转换成 CSV", "document"),
        ("请转成csv格式", "document"),
        ("图里的text是什么", "ocr"),
        ("Where is the cat?", "locate"),
        ("What is on the table, and where?", "locate"),
        ("How many sheep are there?", "locate"),
        ("红色的车在哪里", "locate"),
        ("Describe the scene.", "describe"),
        ("What's in this?", "describe"),
        ("描述这张图片", "describe"),
        ("图中有什么？", "describe"),
    ],
)
def test_auto_goes_by_the_words(question: str, task: Task) -> None:
    assert not needs_picture("auto", question)
    budget = choose_budget("auto", question, None)
    assert budget.task == task
    assert budget.reason.startswith("auto: the question asks")
    assert f"→ {task}, up to {budget.max_tokens} tokens" in budget.reason


@pytest.mark.parametrize(
    "question",
    [
        "Whose handwriting_of_Jane_Doe_4711?",
        "Read the will of Jane Doe",
        "handwritNERVES",
        "谁的发票",
    ],
)
def test_the_reason_names_the_rule_and_not_the_question(question: str) -> None:
    reason = choose_budget("auto", question).reason
    assert reason == "auto: the question asks to read text → ocr, up to 768 tokens"


@given(
    question=st.text()
    | st.lists(
        st.sampled_from(("read", "page", "where", "describe", "handwrit", "totals", "它在哪里"))
        | st.text(max_size=9)
    ).map("".join)
)
def test_reasons_are_a_fixed_set(question: str) -> None:
    asks = "a whole document", "read text", "find things", "a description"
    rules = "|".join(
        ["the picture is not known", *(f"the question asks (for|to)? ?{a}" for a in asks)]
    )
    tasks = "document|ocr|locate|describe"
    reason = choose_budget("auto", question).reason
    assert re.fullmatch(rf"auto: ({rules}) → ({tasks}), up to \d+ tokens", reason, re.ASCII)


def test_auto_uses_the_picture_where_words_do_not_decide() -> None:
    question = "Is it good?"
    assert needs_picture("auto", question)
    assert choose_budget("auto", question, picture(written(448, 448, 16))).task == "ocr"
    photo = choose_budget("auto", question, picture(cloudy(448, 448, 1.5)))
    assert photo.task == "describe"
    assert "looks like text → describe" in photo.reason
    assert choose_budget("auto", question, None).task == "ocr"


def test_a_given_task_needs_no_picture() -> None:
    tokens = {}
    for task in TASKS[1:]:
        assert not needs_picture(task, "")
        tokens[task] = choose_budget(task, "Where is the total?").max_tokens
    assert tokens == {"ocr": 768, "document": 1280, "describe": 196, "locate": 576, "frame": 49}


def test_given_areas_override() -> None:
    budget = choose_budget("describe", "", min_pixels=2048, max_pixels=4096)
    assert (budget.min_pixels, budget.max_pixels) == (2048, 4096)
    assert budget.reason.endswith("up to 4 tokens, min_pixels given, max_pixels given")
    low = choose_budget("ocr", "", max_pixels=4096)
    assert (low.min_pixels, low.max_pixels) == (4096, 4096)
    high = choose_budget("frame", "", min_pixels=1_000_000)
    assert (high.min_pixels, high.max_pixels) == (1_000_000, 2_000_000)


def test_tasks_keep_to_the_checkpoints_limits() -> None:
    small = choose_budget("document", "", limits=(1024, 65_536))
    # A small model was trained on small pictures, as they are.
    assert (small.min_pixels, small.max_pixels) == (1024, 65_536)
    large = choose_budget("describe", "", limits=(150_000, 10_000_000))
    assert (large.min_pixels, large.max_pixels) == (150_000, 448 * 448)


@pytest.mark.parametrize(
    ("low", "high", "match"),
    [
        (5000, 4000, "min_pixels=5000 is more than max_pixels=4000"),
        (None, 1023, "max_pixels=1023 is out of range"),
        (0, None, "min_pixels=0 is out of range"),
        (None, -5, "max_pixels=-5"),
        (None, QWEN3_VL_LIMITS[1] + 1, "the checkpoint's limit"),
        (QWEN3_VL_LIMITS[1] + 1, None, "the checkpoint's limit"),
    ],
)
def test_contradictory_areas_are_refused(low: int | None, high: int | None, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        choose_budget("ocr", "", min_pixels=low, max_pixels=high)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(OptionError, match="unknown task 'ocrr'; use one of auto, ocr"):
        choose_budget("ocrr", "")  # type: ignore[arg-type]


# --- fit

budgets = st.builds(
    lambda low, ratio: Budget("ocr", low, round(low * ratio), ""),
    st.integers(TOKEN_PIXELS, 500_000),
    st.floats(1, 20),
)
roomy_budgets = st.builds(
    lambda low, ratio: Budget("ocr", low, round(low * ratio) + 8 * TOKEN_PIXELS, ""),
    st.integers(TOKEN_PIXELS, 500_000),
    st.floats(4, 20),
)
sides = st.integers(1, 20_000)


@given(sides, sides, budgets)
@example(20_000, 50, Budget("ocr", 448 * 448, 768 * TOKEN_PIXELS, ""))
@example(1, 1, Budget("ocr", 448 * 448, 768 * TOKEN_PIXELS, ""))
def test_fit_keeps_to_tokens_and_the_largest_area(width: int, height: int, budget: Budget) -> None:
    fitted = fit(width, height, budget)
    assert all(side >= 32 and side % 32 == 0 for side in fitted)
    assert math.prod(fitted) <= budget.max_pixels
    assert fit(height, width, budget) == fitted[::-1]


@given(sides, sides, roomy_budgets)
def test_fit_reaches_the_least_area_where_there_is_room(
    width: int, height: int, budget: Budget
) -> None:
    assert math.prod(fit(width, height, budget)) >= budget.min_pixels


@given(sides, sides, budgets)
def test_fit_keeps_the_aspect_ratio(width: int, height: int, budget: Budget) -> None:
    cols, rows = (side // 32 for side in fit(width, height, budget))
    if min(cols, rows) >= 2:
        # Each side is off by less than a token.
        assert (cols - 1) / (rows + 1) < width / height < (cols + 1) / (rows - 1)


@given(sides, sides, budgets)
def test_fit_is_stable(width: int, height: int, budget: Budget) -> None:
    once = fit(width, height, budget)
    if math.prod(once) >= budget.min_pixels:
        assert fit(*once, budget) == once


@given(sides, sides)
def test_fit_enlarges_no_more_than_needed(width: int, height: int) -> None:
    budget = Budget("ocr", 448 * 448, 768 * TOKEN_PIXELS, "")
    fitted = fit(width, height, budget)
    if width * height >= budget.min_pixels * 1.5 and min(width, height) >= 32:
        # Nothing to enlarge: at most rounded up to a token.
        assert fitted[0] <= width + 16
        assert fitted[1] <= height + 16


def test_ribbons() -> None:
    budget = Budget("ocr", 448 * 448, 768 * TOKEN_PIXELS, "")
    assert fit(20_000, 50, budget) == (17_728, 32)
    assert fit(30_000, 5, budget) == (768 * 32, 32)
    assert fit(5, 30_000, budget) == (32, 768 * 32)
    assert fit(20_000, 5, budget) == (20_000, 32)
    assert fit(5_000, 1, budget) == (196 * 32, 32)
    assert fit(1, 1, budget) == (448, 448)
    with pytest.raises(OptionError):
        fit(0, 5, budget)


@settings(deadline=None)  # importing transformers takes seconds
@given(st.integers(17, 9000), st.integers(17, 9000), budgets)
@example(1920, 1080, Budget("ocr", *QWEN3_VL_LIMITS, ""))
@example(100, 100, Budget("ocr", 448 * 448, 768 * TOKEN_PIXELS, ""))
def test_fit_equals_smart_resize(width: int, height: int, budget: Budget) -> None:
    qwen = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    assume(max(width, height) <= 200 * min(width, height))
    expected = qwen.smart_resize(
        height, width, factor=32, min_pixels=budget.min_pixels, max_pixels=budget.max_pixels
    )
    # Where the areas lie too close together, theirs overshoots.
    assume(math.prod(expected) <= budget.max_pixels)
    assert fit(width, height, budget) == expected[::-1]
