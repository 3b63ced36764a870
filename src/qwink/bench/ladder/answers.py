"""What a service gave: times, tokens, and what quality is measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.types import Grid


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One answer. Times are of the whole request and of parts of it, in milliseconds.

    `per_answer_ms` is the request's share of the time in which it was answered together with
    others; `image` is the prepared picture [H, W, 3]; `logits` those of the first token [vocab].
    """

    name: str  # of the question
    load_ms: float
    prepare_ms: float
    first_token_ms: float
    total_ms: float
    per_answer_ms: float
    image_tokens: int
    tokens: tuple[int, ...]
    text: str
    logits: NDArray[np.float32]
    image: NDArray[np.uint8]


def unpatchify(
    patches: NDArray[Any], grid: Grid, patch_size: int = 16, merge_size: int = 2
) -> NDArray[np.uint8]:
    """Patches [P, 3 * patch_size²] back into the picture [H, W, 3]."""
    rows, cols = grid.h // merge_size, grid.w // merge_size
    shape = rows, cols, merge_size, merge_size, 3, patch_size, patch_size
    # [rows, cols, m, m, 3, p, p] → [rows, m, p, cols, m, p, 3]
    ordered = patches.reshape(shape).transpose(0, 2, 5, 1, 3, 6, 4)
    return ordered.reshape(grid.h * patch_size, grid.w * patch_size, 3).astype(np.uint8)
