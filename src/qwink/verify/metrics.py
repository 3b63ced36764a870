"""How far the numbers of one computation are from those of another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]
LEAST_RATIO = 1e-12  # 120 dB, about what float32 can tell; equal arrays have no noise at all


def noise_ratio(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Noise power over signal power of arrays [G, ...]: the mean over the G tensors.

    Each tensor is weighed by its own signal, so that none drowns the others.
    """
    axes = tuple(range(1, wanted.ndim))
    noise = np.square(found - wanted).mean(axes, dtype=np.float64)
    signal = np.square(wanted).mean(axes, dtype=np.float64)
    return float((noise / np.maximum(signal, np.finfo(np.float32).tiny)).mean())


def decibels(ratio: float) -> float:
    """A noise ratio as signal-to-noise in dB: 0.01 is 20 dB. Higher is better, 120 the most."""
    return -10 * math.log10(max(ratio, LEAST_RATIO))


def centred(logits: Float) -> Float:
    """Logits [..., vocab] without their mean, which no probability depends on."""
    shifted: Float = logits - logits.mean(-1, keepdims=True)
    return shifted


def log_softmax(logits: Float) -> NDArray[np.float64]:
    """Natural logarithms of probabilities, [..., vocab]."""
    x = logits - logits.max(-1, keepdims=True).astype(np.float64)
    shifted: NDArray[np.float64] = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return shifted


def kl_nats(found: Float, wanted: Float) -> NDArray[np.float64]:
    """Kullback-Leibler divergence of `found` from `wanted`, both logits [T, vocab] → [T]."""
    p, q = log_softmax(wanted), log_softmax(found)
    divergence: NDArray[np.float64] = (np.exp(p) * (p - q)).sum(-1)
    return divergence


def logits_snr_db(found: Float, wanted: Float) -> float:
    """Signal-to-noise of logits [T, vocab]."""
    return decibels(noise_ratio(centred(found)[None], centred(wanted)[None]))
