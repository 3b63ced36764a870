"""Answers of a service, and their quality compared with those of another service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.lab.quality import agreement, correlation, picture_error, psnr_db
from qwink.types import Grid


@dataclass(frozen=True, slots=True, eq=False)
class RungAnswer:
    """One answer. Times are of the whole request and of its parts, in milliseconds.

    `per_answer_ms` is `total_ms`, or for requests that ran together the time of all of them
    divided by their number. `image` is the prepared picture [H, W, 3]; `logits` are those of the
    first token, [vocab].
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


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over the `count` questions that both services answered.

    `first_token` is the share of equal first tokens, `answer` the share of tokens before the
    first difference. `logits` is the correlation (Pearson) of the first token's. `psnr_db` (of
    the mean squared error over all pictures; None: equal pixels) and `ssim` compare the prepared
    pictures, resized to the reference's size.
    """

    count: int
    first_token: float
    answer: float
    logits: float
    psnr_db: float | None
    ssim: float


def compare(found: Sequence[RungAnswer], reference: Sequence[RungAnswer]) -> Quality | None:
    """Compares answers to questions of the same name; None where there are none."""
    known = {answer.name: answer for answer in reference}
    pairs = [(answer, known[answer.name]) for answer in found if answer.name in known]
    if not pairs:
        return None
    rows = np.array([_compare(*pair) for pair in pairs])
    first_token, answer, logits, squared_error, ssim = (float(x) for x in rows.mean(0))
    psnr = psnr_db(squared_error)
    return Quality(
        len(pairs),
        round(first_token, 3),
        round(answer, 3),
        round(logits, 4),
        None if psnr is None else round(psnr, 1),
        round(ssim, 4),
    )


def _compare(found: RungAnswer, reference: RungAnswer) -> tuple[float, ...]:
    return (
        float(found.tokens[:1] == reference.tokens[:1]),
        agreement(found.tokens, reference.tokens),
        correlation(found.logits, reference.logits),
        *picture_error(found.image, reference.image),
    )


def count_correct(answers: Sequence[RungAnswer], truths: Mapping[str, str]) -> tuple[int, int]:
    """The number of answers that contain the true one, and of those whose truth is known."""
    known = [answer for answer in answers if answer.name in truths]
    found = [truths[answer.name].casefold() in answer.text.casefold() for answer in known]
    return sum(found), len(known)


def unpatchify(
    patches: NDArray[Any], grid: Grid, patch_size: int = 16, merge_size: int = 2
) -> NDArray[np.uint8]:
    """The inverse of `patchify`: patches [P, 3 * patch_size²] → the picture [H, W, 3]."""
    rows, cols = grid.h // merge_size, grid.w // merge_size
    shape = rows, cols, merge_size, merge_size, 3, patch_size, patch_size
    # [rows, cols, m, m, 3, p, p] → [rows, m, p, cols, m, p, 3]
    ordered = patches.reshape(shape).transpose(0, 2, 5, 1, 3, 6, 4)
    return ordered.reshape(grid.h * patch_size, grid.w * patch_size, 3).astype(np.uint8)
