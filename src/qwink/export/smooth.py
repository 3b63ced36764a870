"""Outlier smoothing: keeps a few large channels from taking the whole range of an int8 row.

A few channels of the residual stream can be many times larger than the others, at every token.
SmoothQuant (Xiao et al., 2022, arXiv:2211.10438) moves half of a channel's size, on a logarithmic
scale, from the activations into the weights that read them; the product stays the same.
SmoothQuant measures sizes on calibration data. Here they are estimated from the weights that write
to the stream, so an export needs no data. Channels that are no outliers stay exactly as they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]

OUTLIER = 2.0  # times the median channel


class ChannelSizes:
    """Estimated sizes of the residual stream's channels, from the weights that write to them."""

    def __init__(self, hidden_size: int) -> None:
        self._energy = np.zeros(hidden_size, np.float64)

    def add_writer(self, weight: Float) -> None:
        """A matrix [D, K] whose output is added to the stream. All writers have equal weight."""
        energy = np.square(weight).mean(axis=1, dtype=np.float64)
        self._energy += energy / max(float(energy.mean()), 1e-30)

    def smoothing(self, gamma: Float) -> Float:
        """Factors [D], 1 or more, for a norm with weight `gamma` [D] and the matrices that read it.

        Divide `gamma` by them, and multiply the columns of the matrices by them.
        """
        size = np.abs(gamma) * np.sqrt(self._energy)
        excess = size / max(OUTLIER * float(np.median(size)), 1e-30)
        return np.sqrt(np.maximum(excess, 1.0)).astype(np.float32)
