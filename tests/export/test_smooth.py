"""Outlier channels are found from the weights that write to them; others stay as they are."""

import numpy as np
from numpy.typing import NDArray

from qwink.export.quantize import quantize_columns
from qwink.export.smooth import ChannelSizes

HIDDEN, OUTLIERS = 256, [3, 77]

Float = NDArray[np.float32]


def writers(size: float) -> ChannelSizes:
    rng = np.random.default_rng(0)
    found = ChannelSizes(HIDDEN)
    for _ in range(4):
        weight = rng.standard_normal((HIDDEN, 128)).astype(np.float32)
        weight[OUTLIERS] *= size
        found.add_writer(weight)
    return found


def test_channels_of_one_size_stay_as_they_are() -> None:
    scales = writers(1).smoothing(np.ones(HIDDEN, np.float32))
    np.testing.assert_array_equal(scales, np.ones(HIDDEN))


def test_only_outlier_channels_are_scaled() -> None:
    scales = writers(30).smoothing(np.ones(HIDDEN, np.float32))
    assert set(np.flatnonzero(scales > 1)) == set(OUTLIERS)
    np.testing.assert_allclose(scales[OUTLIERS], np.sqrt(30 / 2), rtol=0.2)


def test_a_large_weight_of_the_norm_counts_too() -> None:
    gamma = np.ones(HIDDEN, np.float32)
    gamma[9] = -20
    assert np.flatnonzero(writers(1).smoothing(gamma) > 1).tolist() == [9]


def test_int8_rows_gain_ten_decibels() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, HIDDEN)).astype(np.float32)
    x[:, OUTLIERS] *= 30
    weight = rng.standard_normal((512, HIDDEN)).astype(np.float32)
    scales = writers(30).smoothing(np.ones(HIDDEN, np.float32))
    plain, smooth = snr(x, weight, x, weight), snr(x, weight, x / scales, weight * scales)
    assert smooth > plain + 8  # 10 dB measured


def snr(x: Float, weight: Float, given: Float, stored: Float) -> float:
    """Of the int8 product of `given` and `stored`, against x · weightᵀ, in dB."""
    peak = np.abs(given).max(axis=1, keepdims=True)
    rows = np.rint(given * (127 / peak)) * (peak / 127)
    values, scales = quantize_columns(stored)
    wanted, found = x @ weight.T, rows @ (values * scales)
    return float(10 * np.log10(np.square(wanted).mean() / np.square(found - wanted).mean()))
