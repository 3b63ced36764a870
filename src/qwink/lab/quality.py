"""Quality of one computation compared with a reference: logits, states, answers, pictures.

All commands that report quality take their figures from here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

Float = NDArray[np.float32]
LEAST_RATIO = 1e-12  # 120 dB, about the precision of float32; equal arrays have no noise at all
# Another first choice is a clear change only if the reference found it less than half as likely
# as its own first choice.
CLEAR_NATS = math.log(2)


@dataclass(frozen=True, slots=True)
class LogitsQuality:
    """Logits of `num_tokens` tokens compared with the reference's at the same places.

    `num_agreeing` first choices are equal; `num_clear` of the others the reference found less
    than half as likely as its own. `kl_nats` is the mean over the tokens.
    """

    num_tokens: int
    num_agreeing: int
    num_clear: int
    kl_nats: float
    snr_db: float

    @property
    def top1_agreement(self) -> float:
        """The share of equal first choices."""
        return self.num_agreeing / self.num_tokens


def compare_logits(found: Float, reference: Float) -> LogitsQuality:
    """Both [T, vocab]."""
    chosen, choices = reference.argmax(-1), found.argmax(-1)
    scores, tokens = log_softmax(reference), np.arange(len(reference))
    lead = scores[tokens, chosen] - scores[tokens, choices]
    return LogitsQuality(
        len(reference),
        int((choices == chosen).sum()),
        int((lead > CLEAR_NATS).sum()),
        float(kl_nats(found, reference).mean()),
        logits_snr_db(found, reference),
    )


def log_softmax(logits: Float) -> NDArray[np.float64]:
    """Natural logarithms of probabilities, [..., vocab]."""
    x = logits - logits.max(-1, keepdims=True).astype(np.float64)
    shifted: NDArray[np.float64] = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return shifted


def kl_nats(found: Float, reference: Float) -> NDArray[np.float64]:
    """Kullback-Leibler divergence of `found` from `reference`, both logits [T, vocab] → [T]."""
    p, q = log_softmax(reference), log_softmax(found)
    divergence: NDArray[np.float64] = (np.exp(p) * (p - q)).sum(-1)
    return divergence


def logits_snr_db(found: Float, reference: Float) -> float:
    """Signal-to-noise of logits [T, vocab], each row less its mean: softmax ignores the mean."""
    centred = (x - x.mean(-1, keepdims=True) for x in (found, reference))
    noise, signal = (x[None] for x in centred)
    return decibels(noise_ratio(noise, signal))


def noise_ratio(found: NDArray[Any], reference: NDArray[Any]) -> float:
    """Noise power over signal power of arrays [G, ...]: the mean over the G tensors.

    Each tensor's noise is divided by the tensor's own signal before the mean is taken, so that
    large tensors do not hide small ones.
    """
    axes = tuple(range(1, reference.ndim))
    noise = np.square(found - reference).mean(axes, dtype=np.float64)
    signal = np.square(reference).mean(axes, dtype=np.float64)
    return float((noise / np.maximum(signal, np.finfo(np.float32).tiny)).mean())


def decibels(ratio: float) -> float:
    """A noise ratio as signal-to-noise in dB: 0.01 is 20 dB. Higher is better, 120 the most."""
    return -10 * math.log10(max(ratio, LEAST_RATIO))


def correlation(found: Float, reference: Float) -> float:
    """Pearson's, of two tokens' logits [vocab]: comparable across number formats and sizes."""
    return float(np.corrcoef(found, reference)[0, 1])


def agreement(found: Sequence[int], reference: Sequence[int]) -> float:
    """The share of tokens before the first difference, of the longer answer."""
    pairs = enumerate(zip(found, reference, strict=False))
    shorter, longer = sorted((len(found), len(reference)))
    different = next((index for index, (a, b) in pairs if a != b), shorter)
    return different / max(longer, 1)


def picture_error(found: NDArray[np.uint8], reference: NDArray[np.uint8]) -> tuple[float, float]:
    """Mean squared error and structural similarity (Wang et al., 2004) of pictures [H, W, 3].

    `found` is resized to the reference's size first. Needs scikit-image.
    """
    from skimage.metrics import structural_similarity  # takes a second to import

    if found.shape != reference.shape:
        height, width, _ = reference.shape
        image = PIL.Image.fromarray(found).resize((width, height), PIL.Image.Resampling.BICUBIC)
        found = np.asarray(image)
    error = np.square(found.astype(np.float32) - reference).mean(dtype=np.float64)
    similarity: Any = structural_similarity
    return float(error), float(similarity(found, reference, channel_axis=2))


def psnr_db(squared_error: float) -> float | None:
    """Peak signal-to-noise of 8-bit pictures, from their mean squared error; None without any."""
    return 10 * math.log10(255**2 / squared_error) if squared_error else None
