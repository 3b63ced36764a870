"""How near a service's answers and prepared pictures are to another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from qwink.bench.ladder.answers import Answer


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over the `count` questions that both answered.

    `first_token` and `answer` are shares of tokens that are the same: of first ones, and of all
    up to the first difference. `logits` is the correlation (Pearson) of the first token's.
    `psnr_db` (over all pictures' squared error; None: the same pixels) and `ssim` compare the
    prepared pictures, enlarged to the other's size where they are smaller.
    """

    count: int
    first_token: float
    answer: float
    logits: float
    psnr_db: float | None
    ssim: float


def compare(own: Sequence[Answer], reference: Sequence[Answer]) -> Quality | None:
    """Questions of the same name are compared; None where there are none."""
    known = {answer.name: answer for answer in reference}
    pairs = [(answer, known[answer.name]) for answer in own if answer.name in known]
    if not pairs:
        return None
    rows = np.array([_compare(*pair) for pair in pairs])
    first_token, answer, logits, squared_error, ssim = (float(x) for x in rows.mean(0))
    psnr = round(10 * np.log10(255**2 / squared_error), 1) if squared_error else None
    return Quality(
        len(pairs), round(first_token, 3), round(answer, 3), round(logits, 4), psnr, round(ssim, 4)
    )


def _compare(own: Answer, reference: Answer) -> tuple[float, ...]:
    same = agreement(own.tokens, reference.tokens)
    first = float(own.tokens[:1] == reference.tokens[:1])
    correlation = float(np.corrcoef(own.logits, reference.logits)[0, 1])
    return first, same, correlation, *_pixels(own.image, reference.image)


def agreement(own: Sequence[int], reference: Sequence[int]) -> float:
    """The share of tokens up to the first difference, of the longer answer."""
    pairs = enumerate(zip(own, reference, strict=False))
    different = next((index for index, (a, b) in pairs if a != b), min(len(own), len(reference)))
    return different / max(len(own), len(reference), 1)


def _pixels(own: NDArray[np.uint8], reference: NDArray[np.uint8]) -> tuple[float, float]:
    """Mean squared error and structural similarity (Wang et al., 2004)."""
    from skimage.metrics import structural_similarity  # takes a second to import

    if own.shape != reference.shape:
        height, width, _ = reference.shape
        image = PIL.Image.fromarray(own).resize((width, height), PIL.Image.Resampling.BICUBIC)
        own = np.asarray(image)
    error = np.square(own.astype(np.float32) - reference).mean(dtype=np.float64)
    similarity: Any = structural_similarity
    return float(error), float(similarity(own, reference, channel_axis=2))


def right(answers: Sequence[Answer], truths: dict[str, str]) -> tuple[int, int]:
    """Answers that contain what is known to be true, and of how many it is known."""
    known = [answer for answer in answers if answer.name in truths]
    found = [truths[answer.name].casefold() in answer.text.casefold() for answer in known]
    return sum(found), len(known)
