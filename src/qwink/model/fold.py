"""Folds preprocessing into the patch embedding, so that it takes uint8 pixels of one frame."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwink.model.config import PreprocessorConfig

Float = NDArray[np.float32]


def fold_patch_embedding(
    weight: Float, bias: Float, preprocessor: PreprocessorConfig
) -> tuple[Float, Float]:
    """Fold (x / 255 - mean) / std and the repeated frame into the convolution.

    weight [D, 3, T, patch, patch], bias [D] → weight [D, 3·patch²] and bias [D] for uint8 pixels;
    exact up to rounding. Preprocessing repeats a still image as all T frames, so the weights of
    the frames can be added.
    """
    mean = np.asarray(preprocessor.image_mean, np.float64)[:, None, None]
    std = np.asarray(preprocessor.image_std, np.float64)[:, None, None]
    summed = weight.astype(np.float64).sum(axis=2) / std  # [D, 3, patch, patch]
    folded = (summed / 255).reshape(weight.shape[0], -1)
    shifted = bias - (summed * mean).reshape(weight.shape[0], -1).sum(axis=1)
    return folded.astype(np.float32), shifted.astype(np.float32)
