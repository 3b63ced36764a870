"""Folds preprocessing into the patch embedding, so that it takes uint8 pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwink.model.config import PreprocessorConfig

Float = NDArray[np.float32]


def fold_patch_embedding(
    weight: Float, bias: Float, preprocessor: PreprocessorConfig
) -> tuple[Float, Float]:
    """Fold (x / 255 - mean) / std and the repeated frame into the convolution, for still images.

    weight [D, 3, T, patch, patch], bias [D] → weight [D, 3·patch²] and bias [D] for uint8 pixels;
    exact up to rounding. Preprocessing repeats a still image as all T frames, so the weights of
    the frames can be added.
    """
    return _fold(weight.astype(np.float64).sum(axis=2, keepdims=True), bias, preprocessor)


def fold_frame_embedding(
    weight: Float, bias: Float, preprocessor: PreprocessorConfig
) -> tuple[Float, Float]:
    """As `fold_patch_embedding`, for T frames of a video: weight [D, 3·T·patch²], bias [D].

    Pixels of a patch are ordered channel, frame, row, column.
    """
    return _fold(weight.astype(np.float64), bias, preprocessor)


def _fold(
    weight: NDArray[np.float64], bias: Float, preprocessor: PreprocessorConfig
) -> tuple[Float, Float]:
    mean = np.asarray(preprocessor.image_mean, np.float64)[:, None, None, None]
    std = np.asarray(preprocessor.image_std, np.float64)[:, None, None, None]
    scaled = weight / std  # [D, 3, T, patch, patch]
    folded = (scaled / 255).reshape(weight.shape[0], -1)
    shifted = bias - (scaled * mean).reshape(weight.shape[0], -1).sum(axis=1)
    return folded.astype(np.float32), shifted.astype(np.float32)
