"""Choose how many pixels, and so how many visual tokens, a picture gets for a task.

One visual token covers 32×32 px. Time grows with the tokens, so a task gets only what it needs.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qwink.errors import OptionError
from qwink.types import TASKS, Picture, Task

TOKEN_SIDE = 32
TOKEN_PIXELS = TOKEN_SIDE * TOKEN_SIDE
QWEN3_VL_LIMITS = (65_536, 16_777_216)  # of the published checkpoints' preprocessor

# (min, max) in pixels. A picture below min is enlarged, since thin strokes vanish in few patches.
# A picture above max is reduced.
_TASK_PIXELS: dict[Task, tuple[int, int]] = {
    # Keeps the scale of a receipt or screenshot about 900 px wide, where letters have 12 px.
    "ocr": (448 * 448, 768 * TOKEN_PIXELS),
    # An A4 page becomes about 960×1340 px (115 dpi), in which 9 pt print is about 14 px high.
    "document": (448 * 448, 1280 * TOKEN_PIXELS),
    # 768×768 px: the model gives coordinates in thousandths, and small objects must be visible.
    "locate": (448 * 448, 576 * TOKEN_PIXELS),
    # 448×448 px: more pixels change captions little and cost seconds on a CPU.
    "describe": (336 * 336, 196 * TOKEN_PIXELS),
    # 224×224 px: a video has many frames, and neighbouring frames are alike.
    "frame": (224 * 224, 49 * TOKEN_PIXELS),
}
# The larger of the two tasks that `auto` chooses between when the question does not decide.
LARGEST_UNDECIDED: Task = "ocr"
# `auto` reads text where at least this share of the tiles has text: a sign in a scene has about it.
TEXT_DETAIL_THRESHOLD = 0.06
_MAX_SAMPLES = 400_000
_MIN_CONTRAST = 48  # of 255

# Largest budget first: too many pixels do less harm than too few. The second column goes into
# notes and so into logs: it names the rule and never repeats the question.
_WORDS: tuple[tuple[Task, str, str], ...] = (
    (
        "document",
        "asks for a whole document",
        r"\b(?:documents?|markdown|html|latex|csv|spreadsheets?|convert|parse|pages?)\b"
        r"|(?<!\bon the )(?<!\bon a )(?<!\bunder the )(?<!\bat the )\btables?\b"
        r"|文档|文件|表格|转换|转成|转为|版面|公式",
    ),
    (
        "ocr",
        "asks to read text",
        r"\b(?:read(?:s|ing)?|ocr|texts?|words?|says?|written|writing|handwrit\w+|letters?"
        r"|digits?|spell(?:s|ed)?|transcribe|translate|totals?|subtotal|prices?|costs?|amounts?"
        r"|invoices?|receipts?|bills?|menus?|labels?|titles?|dates?|address(?:es)?|e-?mails?"
        r"|(?:phone|serial|account|order|invoice|plate|house) numbers?"
        r"|(?:number|licen[cs]e) plates?)\b"
        r"|文字|文本|读|念一下|念出|识别|写了|写着|写的|什么字|发票|收据|小票|账单|金额|总计|总额|合计"
        r"|价格|多少钱|日期|号码|车牌|地址|翻译|菜单|标题",
    ),
    (
        "locate",
        "asks to find things",
        r"\b(?:where|locat(?:e|es|ion)|find|detect|box(?:es)?|bounding|bbox|point(?:s|ing)?"
        r"|positions?|coordinates?|count|how many)\b"
        r"|哪里|在哪|哪儿|位置|定位|找到|找出|找一下|检测|框|坐标|指出|标出|几个|多少个|数一数",
    ),
    (
        "describe",
        "asks for a description",
        r"\b(?:describe|description|caption|scene|look like"
        r"|what(?:'s| is| are) (?:in|on|this|happening|shown)"
        r"|what do you see|what can you see|who is|what colou?r)\b"
        r"|描述|形容|场景|内容是什么|这是什么|有什么|什么颜色|看到什么|看到了什么|说明一下|发生了什么",
    ),
)


@dataclass(frozen=True, slots=True)
class Budget:
    """Least and most pixels (width × height) of a resized picture, and the rule that set them.

    `reason` is one of a fixed set of phrases with numbers; it holds no word of the question.
    """

    task: Task
    min_pixels: int
    max_pixels: int
    reason: str

    @property
    def max_tokens(self) -> int:
        return self.max_pixels // TOKEN_PIXELS


def needs_picture(task: Task, question: str) -> bool:
    """Whether `choose_budget` needs the pixels: task `auto`, and the question does not decide.

    Decode the picture for the budget of task LARGEST_UNDECIDED in that case.
    """
    return task == "auto" and _task_from_words(question) is None


def choose_budget(
    task: Task,
    question: str,
    picture: Picture | None = None,
    *,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
    limits: tuple[int, int] = QWEN3_VL_LIMITS,
) -> Budget:
    """Decide how large a picture may become for `task`.

    `auto` uses the words of the question, then the picture's `text_detail`; without a picture it
    assumes text. `min_pixels` and `max_pixels` override the task's values. `limits` are the
    checkpoint's (min, max); a task with a smaller minimum overrides that minimum.

    Raises OptionError for an unknown task, for min_pixels above max_pixels, and for areas below
    one token or above the limits.
    """
    if task not in TASKS:
        raise OptionError(f"unknown task {task!r}; use one of {', '.join(TASKS)}")
    for name, value in (("min_pixels", min_pixels), ("max_pixels", max_pixels)):
        _check_area(name, value, limits[1])
    if min_pixels is not None and max_pixels is not None and min_pixels > max_pixels:
        raise OptionError(
            f"min_pixels={min_pixels} is more than max_pixels={max_pixels}; "
            "lower the one or raise the other"
        )
    chosen, why = (task, f"task {task}") if task != "auto" else _auto(question, picture)
    low, high = _TASK_PIXELS[chosen]
    if limits[1] <= high:
        low = limits[0]  # a small model was trained on small pictures without enlarging them
    if max_pixels is not None:
        high = max_pixels
    elif min_pixels is not None:
        high = max(high, 2 * min_pixels)  # leaves room for whole tokens between min and max
    high = max(TOKEN_PIXELS, min(high, limits[1]))
    low = min(max(low, limits[0]) if min_pixels is None else min_pixels, high)
    given = [
        f"{name} given"
        for name, value in (("min_pixels", min_pixels), ("max_pixels", max_pixels))
        if value is not None
    ]
    reason = ", ".join([why, f"up to {high // TOKEN_PIXELS} tokens", *given])
    return Budget(chosen, low, high, reason)


def fit(width: int, height: int, budget: Budget) -> tuple[int, int]:
    """The size (width, height) to resize to: multiples of 32 px, near the aspect ratio.

    Equals `smart_resize` of Qwen's preprocessing wherever that gives a valid answer: sides are
    rounded to tokens; above max_pixels they are scaled down and floored, below min_pixels scaled
    up and ceiled. Unlike `smart_resize` it takes any aspect ratio. The area never exceeds
    max_pixels. It is below min_pixels only where no size of this aspect ratio lies between the two.

    Raises OptionError when a side is below 1 px.
    """
    if width < 1 or height < 1:
        raise OptionError(f"a picture of {width}×{height} px has no pixels to fit")
    least, most = budget.min_pixels, budget.max_pixels
    native = max(1, round(width / TOKEN_SIDE)), max(1, round(height / TOKEN_SIDE))
    cols, rows = native
    if cols * rows * TOKEN_PIXELS < least:
        scale = math.sqrt(least / (width * height))
        cols, rows = (math.ceil(side * scale / TOKEN_SIDE) for side in (width, height))
    if cols * rows * TOKEN_PIXELS > most:
        shrink = math.sqrt(width * height / most)
        cols, rows = (max(1, int(side / shrink / TOKEN_SIDE)) for side in (width, height))
    if cols * rows * TOKEN_PIXELS > most:
        # One side is shorter than a token at this scale: make it one token, the other as allowed.
        length = max(*native, math.ceil(least / TOKEN_PIXELS))
        length = min(length, most // TOKEN_PIXELS)
        cols, rows = (length, 1) if width > height else (1, length)
    return cols * TOKEN_SIDE, rows * TOKEN_SIDE


def text_detail(pixels: NDArray[np.uint8]) -> float:
    """The share of tiles of a picture [H, W, 3] that look like text, 0..1.

    A tile of 32×32 samples looks like text when it has contrast, when many differences of
    neighbours along its rows or columns are steep in both directions (strokes), and when many
    others are flat (paper). Smooth pictures lack steep differences; textures and noise lack flat
    ones. Charts, tables and line drawings count as text, since they need the pixels too.

    Uses at most about 0.4 million samples, which takes a few milliseconds.
    """
    height, width = pixels.shape[:2]
    step = max(1, math.ceil(math.sqrt(height * width / _MAX_SAMPLES)))
    # Green approximates brightness. Samples are skipped, not averaged, to keep thin strokes steep.
    grey = pixels[::step, ::step, 1].astype(np.int16)
    height, width = grey.shape
    tile_h, tile_w = min(TOKEN_SIDE, height), min(TOKEN_SIDE, width)
    rows, cols = height // tile_h, width // tile_w
    # [rows, tile_h, cols, tile_w] → [rows * cols, tile_h, tile_w]
    grey = grey[: rows * tile_h, : cols * tile_w]
    split = grey.reshape(rows, tile_h, cols, tile_w).transpose(0, 2, 1, 3)
    tiles = split.reshape(rows * cols, tile_h, tile_w)
    contrast = tiles.max(axis=(1, 2)) - tiles.min(axis=(1, 2))
    tiles, contrast = tiles[contrast >= _MIN_CONTRAST], contrast[contrast >= _MIN_CONTRAST]
    if not len(tiles):
        return 0.0
    across = _has_strokes(np.diff(tiles, axis=2), contrast)
    down = _has_strokes(np.diff(tiles, axis=1), contrast)
    return int(np.count_nonzero(across | down)) / int(rows * cols)


def _has_strokes(steps: NDArray[np.int16], contrast: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Which tiles have strokes: differences of neighbours [N, h, w], contrast [N] → [N]."""
    scale = contrast[:, None, None]
    rising = (steps * 4 > scale).mean(axis=(1, 2))
    falling = (steps * -4 > scale).mean(axis=(1, 2))
    flat = (np.abs(steps) * 16 <= scale).mean(axis=(1, 2))
    balanced = np.minimum(rising, falling) * 2 > np.maximum(rising, falling)
    strokes: NDArray[np.bool_] = (rising + falling >= 0.09) & balanced & (flat >= 0.4)
    return strokes


def _auto(question: str, picture: Picture | None) -> tuple[Task, str]:
    found = _task_from_words(question)
    if found is not None:
        task, why = found
        return task, f"auto: the question {why} → {task}"
    if picture is None:
        return LARGEST_UNDECIDED, f"auto: the picture is not known → {LARGEST_UNDECIDED}"
    detail = text_detail(picture.pixels)
    if detail >= TEXT_DETAIL_THRESHOLD:
        return "ocr", f"auto: {detail:.0%} of the picture looks like text → ocr"
    return "describe", f"auto: {detail:.0%} of the picture looks like text → describe"


def asked_task(task: Task, question: str) -> Task | None:
    """The task, or what the words of the question ask for; None where the picture decides."""
    if task != "auto":
        return task
    found = _task_from_words(question)
    return found[0] if found else None


def _task_from_words(question: str) -> tuple[Task, str] | None:
    for task, asks, pattern in _WORDS:
        # ASCII gives a Latin word between Chinese characters word boundaries.
        if re.search(pattern, question, re.IGNORECASE | re.ASCII):
            return task, asks
    return None


def _check_area(name: str, value: int | None, limit: int) -> None:
    if value is not None and not TOKEN_PIXELS <= value <= limit:
        raise OptionError(
            f"{name}={value} is out of range; use {TOKEN_PIXELS} (one visual token) to {limit} "
            "(the checkpoint's limit)"
        )
