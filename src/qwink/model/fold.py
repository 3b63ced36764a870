"""The patch embedding, made to take pixels as they are: bytes, each frame once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwink.model.config import PreprocessorConfig

Float = NDArray[np.float32]


def fold_patch_embedding(
    weight: Float, bias: Float, preprocessor: PreprocessorConfig
) -> tuple[Float, Float]:
    """Fold (x / 255 - mean) / std and the repeated frame into the convolution.

    weight [D, 3, T, patch, patch] → [D, 3·patch²] for uint8 pixels; exact up to rounding.
    A still image is its own second frame, so the frames' weights add up.
    """
    mean = np.asarray(preprocessor.image_mean, np.float64)[:, None, None]
    std = np.asarray(preprocessor.image_std, np.float64)[:, None, None]
    summed = weight.astype(np.float64).sum(axis=2) / std  # [D, 3, patch, patch]
    folded = (summed / 255).reshape(weight.shape[0], -1)
    shifted = bias - (summed * mean).reshape(weight.shape[0], -1).sum(axis=1)
    return folded.astype(np.float32), shifted.astype(np.float32)
