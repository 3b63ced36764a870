"""The folded patch embeddings against PyTorch's convolution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qwink.model.config import PreprocessorConfig
from qwink.model.fold import fold_frame_embedding, fold_patch_embedding


@pytest.mark.parametrize(
    ("mean", "std"), [((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ((0.48, 0.46, 0.41), (0.27, 0.26, 0.28))]
)
def test_folded_patch_embedding_is_the_convolution(
    mean: tuple[float, float, float], std: tuple[float, float, float]
) -> None:
    """The folded weight on uint8 pixels gives what Conv3d gives on normalised, repeated frames."""
    rng = np.random.default_rng(0)
    patch, hidden = 16, 32
    weight = rng.normal(0, 0.03, (hidden, 3, 2, patch, patch)).astype(np.float32)
    bias = rng.normal(size=hidden).astype(np.float32)
    pixels = rng.integers(0, 256, (6, 3, patch, patch), np.uint8)
    preprocessor = PreprocessorConfig(
        image_mean=mean, image_std=std, min_pixels=1024, max_pixels=1 << 20
    )
    folded, shifted = fold_patch_embedding(weight, bias, preprocessor)

    column = np.array((mean, std))[:, :, None, None]
    normalised = (pixels / 255 - column[0]) / column[1]
    frames = torch.from_numpy(normalised).unsqueeze(2).repeat(1, 1, 2, 1, 1)
    convolved = torch.nn.functional.conv3d(
        frames, torch.from_numpy(weight).double(), torch.from_numpy(bias).double()
    )
    found = pixels.reshape(6, -1).astype(np.float64) @ folded.T + shifted
    np.testing.assert_allclose(found, convolved.numpy().reshape(6, hidden), atol=2e-5)


def test_folded_frame_embedding_is_the_convolution() -> None:
    """The folded weight on uint8 pixels gives what Conv3d gives on two normalised frames."""
    rng = np.random.default_rng(1)
    patch, hidden = 16, 32
    weight = rng.normal(0, 0.03, (hidden, 3, 2, patch, patch)).astype(np.float32)
    bias = rng.normal(size=hidden).astype(np.float32)
    pixels = rng.integers(0, 256, (6, 3, 2, patch, patch), np.uint8)
    mean, std = (0.48, 0.46, 0.41), (0.27, 0.26, 0.28)
    preprocessor = PreprocessorConfig(image_mean=mean, image_std=std)
    folded, shifted = fold_frame_embedding(weight, bias, preprocessor)

    column = np.array((mean, std))[:, :, None, None, None]
    normalised = (pixels / 255 - column[0]) / column[1]
    convolved = torch.nn.functional.conv3d(
        torch.from_numpy(normalised),
        torch.from_numpy(weight).double(),
        torch.from_numpy(bias).double(),
    )
    found = pixels.reshape(6, -1).astype(np.float64) @ folded.T + shifted
    np.testing.assert_allclose(found, convolved.numpy().reshape(6, hidden), atol=2e-5)
