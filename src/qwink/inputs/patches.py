"""Turn pictures into patches: one resample, one permutation.

The key of patches covers everything that determines their pixels. Raise PREPROCESSING_VERSION when
this module computes other pixels from the same input.
"""

from __future__ import annotations

import hashlib
from typing import Literal, get_args

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from qwink.errors import OptionError
from qwink.types import Grid, Patches, Picture

PREPROCESSING_VERSION = 2

Resample = Literal["box", "bilinear", "bicubic", "lanczos"]
RESAMPLES: tuple[Resample, ...] = get_args(Resample)

_PILLOW = {
    "box": PIL.Image.Resampling.BOX,
    "bilinear": PIL.Image.Resampling.BILINEAR,
    "bicubic": PIL.Image.Resampling.BICUBIC,
    "lanczos": PIL.Image.Resampling.LANCZOS,
}


def prepare(
    picture: Picture,
    size: tuple[int, int],
    resample: Resample = "bicubic",
    patch_size: int = 16,
    merge_size: int = 2,
) -> Patches:
    """Resize to `size` (width, height) and cut into patches.

    Raises OptionError as `resize` and `patchify` do.
    """
    pixels, grid = patchify(resize(picture, size, resample), patch_size, merge_size)
    key = patches_key(picture, size, resample, patch_size, merge_size)
    return Patches(pixels, grid, key)


def patches_key(
    picture: Picture,
    size: tuple[int, int],
    resample: Resample = "bicubic",
    patch_size: int = 16,
    merge_size: int = 2,
) -> str:
    """SHA-256 in hex of everything that determines the patches; does not compute them.

    The decoded size is part of it: a JPEG decoded at a quarter gives slightly other pixels.
    """
    decoded, resized = picture.size, (int(size[0]), int(size[1]))
    what = (picture.key, decoded, resized, resample, patch_size, merge_size, PREPROCESSING_VERSION)
    return hashlib.sha256(f"qwink patches {what}".encode()).hexdigest()


def prepare_frames(frames: NDArray[np.uint8], patch_size: int = 16, merge_size: int = 2) -> Patches:
    """Cut frames [T, H, W, 3], which are shown together, into patches.

    The key depends on the pixels alone: frames that repeat are encoded once. Raises OptionError as
    `patchify` does.
    """
    pixels, grid = patchify_frames(frames, patch_size, merge_size)
    digest = hashlib.sha256(
        f"qwink frames {frames.shape, patch_size, merge_size, PREPROCESSING_VERSION}".encode()
    )
    digest.update(np.ascontiguousarray(frames).data)
    return Patches(pixels, grid, digest.hexdigest())


def resize(
    picture: Picture, size: tuple[int, int], resample: Resample = "bicubic"
) -> NDArray[np.uint8]:
    """As `resize_pixels`, of a picture."""
    return resize_pixels(picture.pixels, size, resample)


def resize_pixels(
    pixels: NDArray[np.uint8], size: tuple[int, int], resample: Resample = "bicubic"
) -> NDArray[np.uint8]:
    """Resample [H, W, 3] to `size` (width, height): uint8 [H, W, 3]; the same array if it fits.

    Raises OptionError for an unknown filter or a size below 1×1.
    """
    if resample not in _PILLOW:
        raise OptionError(f"unknown resample filter {resample!r}; use {', '.join(RESAMPLES)}")
    if min(size) < 1:
        raise OptionError(f"cannot resize to {size[0]}×{size[1]}; both sides must be at least 1 px")
    if (pixels.shape[1], pixels.shape[0]) == tuple(size):
        return pixels
    image = PIL.Image.fromarray(pixels)
    return np.asarray(image.resize(size, _PILLOW[resample]), dtype=np.uint8)


def patchify(
    pixels: NDArray[np.uint8], patch_size: int = 16, merge_size: int = 2
) -> tuple[NDArray[np.uint8], Grid]:
    """Cut [H, W, 3] into patches [P, 3 * patch_size²] in the order in which the encoder merges.

    Blocks of merge_size × merge_size patches go row by row, patches within a block likewise;
    a patch's values are ordered channel, row, column.

    Raises OptionError when H or W is not a multiple of patch_size * merge_size.
    """
    return patchify_frames(pixels[None], patch_size, merge_size)


def patchify_frames(
    frames: NDArray[np.uint8], patch_size: int = 16, merge_size: int = 2
) -> tuple[NDArray[np.uint8], Grid]:
    """As `patchify`, for T frames [T, H, W, 3] that become one row of patches:
    [P, 3 * T * patch_size²], ordered channel, frame, row, column.
    """
    count, height, width, channels = frames.shape
    block = patch_size * merge_size
    if height % block or width % block or not frames.size:
        raise OptionError(
            f"{width}×{height} px is not made of {block}×{block} px blocks; fit first"
        )
    rows, cols = height // block, width // block
    shape = count, rows, merge_size, patch_size, cols, merge_size, patch_size, channels
    # [T, rows, m, p, cols, m, p, 3] → [rows, cols, m, m, 3, T, p, p]
    ordered = frames.reshape(shape).transpose(1, 4, 2, 5, 7, 0, 3, 6)
    num_patches = rows * cols * merge_size**2
    # [rows, cols, m, m, 3, T, p, p] → [P, 3 * T * p * p]
    patches = ordered.reshape(num_patches, channels * count * patch_size**2)
    return patches, Grid(1, rows * merge_size, cols * merge_size)
