"""Loud channels: a few channels of the residual stream may be many times larger than the rest, at
every token, and would take an int8 row's whole range for themselves.

SmoothQuant (Xiao et al., 2022, arXiv:2211.10438) moves half of a channel's size, on a logarithmic
scale, from the activations into the weights that read them; the product stays the same. There the
size is measured on calibration data. Here it is estimated from the weights that write the channel,
so an export needs no data; channels that are not loud are left exactly as they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]

LOUD = 2.0  # times the median channel


class Loudness:
    """Size of each channel of the residual stream, as far as its writers are known."""

    def __init__(self, hidden_size: int) -> None:
        self._energy = np.zeros(hidden_size, np.float64)

    def add_writer(self, weight: Float) -> None:
        """A matrix [D, K] whose output is added to the stream. All writers count alike."""
        energy = np.square(weight).mean(axis=1, dtype=np.float64)
        self._energy += energy / max(float(energy.mean()), 1e-30)

    def scales(self, gamma: Float) -> Float:
        """What to divide a norm's weight by, and multiply its readers' columns by: [D], ≥ 1."""
        size = np.abs(gamma) * np.sqrt(self._energy)
        loud = size / max(LOUD * float(np.median(size)), 1e-30)
        return np.sqrt(np.maximum(loud, 1.0)).astype(np.float32)
