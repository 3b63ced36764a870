from __future__ import annotations

import dataclasses
import re
from typing import get_args

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from qwink.errors import OptionError
from qwink.inputs.patches import Resample, patches_key, patchify, prepare, resize
from qwink.types import Grid, Picture

Array = NDArray[np.uint8]


def random_pixels(width: int, height: int) -> Array:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def picture(width: int = 100, height: int = 80) -> Picture:
    return Picture(random_pixels(width, height), "ab" * 32, (width, height))


@pytest.mark.parametrize("resample", get_args(Resample))
def test_resize_is_pillows(resample: Resample) -> None:
    source = picture()
    resized = resize(source, (64, 96), resample)
    assert resized.shape == (96, 64, 3)
    image = PIL.Image.fromarray(source.pixels)
    expected = image.resize((64, 96), PIL.Image.Resampling[resample.upper()])
    assert np.array_equal(resized, np.asarray(expected))


def test_resize_to_the_same_size_does_nothing() -> None:
    source = picture()
    assert resize(source, (100, 80)) is source.pixels


def test_resize_refuses_unknown_filters_and_empty_sizes() -> None:
    with pytest.raises(OptionError, match="unknown resample filter 'nearest'; use box, bilinear"):
        resize(picture(), (32, 32), "nearest")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="at least 1 px"):
        resize(picture(), (0, 32))


@pytest.mark.parametrize(("patch_size", "merge_size"), [(16, 2), (8, 1), (4, 3)])
def test_patchify_in_plain_loops(patch_size: int, merge_size: int) -> None:
    block = patch_size * merge_size
    pixels = random_pixels(5 * block, 3 * block)
    patches, grid = patchify(pixels, patch_size, merge_size)
    expected = [
        pixels[top : top + patch_size, left : left + patch_size].transpose(2, 0, 1).ravel()
        for block_top in range(0, pixels.shape[0], block)
        for block_left in range(0, pixels.shape[1], block)
        for top in range(block_top, block_top + block, patch_size)
        for left in range(block_left, block_left + block, patch_size)
    ]
    assert np.array_equal(patches, expected)
    assert patches.dtype == np.uint8
    assert patches.flags.c_contiguous
    assert grid == Grid(1, 3 * merge_size, 5 * merge_size)
    assert grid.num_patches == len(patches)


@pytest.mark.parametrize(("width", "height"), [(32, 32), (448, 320), (64, 992)])
def test_patches_equal_those_of_transformers(width: int, height: int) -> None:
    qwen = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    processor = qwen.Qwen2VLImageProcessorPil(
        patch_size=16,
        merge_size=2,
        temporal_patch_size=2,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        size={"shortest_edge": 1024, "longest_edge": 1 << 24},
    )
    pixels = random_pixels(width, height)
    theirs = processor(images=[PIL.Image.fromarray(pixels)], return_tensors="np")
    # [P, 3 * t * p * p] → [P, 3, t, p * p]; both frames are the same picture
    values = theirs["pixel_values"].reshape(-1, 3, 2, 256)
    assert np.array_equal(values[:, :, 0], values[:, :, 1])
    undone = np.rint((values[:, :, 0] * 0.5 + 0.5) * 255).astype(np.uint8).reshape(-1, 768)
    patches, grid = patchify(pixels)
    assert np.array_equal(patches, undone)
    assert theirs["image_grid_thw"].tolist() == [[grid.t, grid.h, grid.w]]


def test_resized_patches_equal_those_of_transformers() -> None:
    qwen = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    processor = qwen.Qwen2VLImageProcessorPil(
        patch_size=16,
        image_mean=[0.0] * 3,
        image_std=[1.0] * 3,
        size={"shortest_edge": 1024, "longest_edge": 256 * 1024},
    )
    source = picture(1000, 700)
    theirs = processor(images=[PIL.Image.fromarray(source.pixels)], return_tensors="np")
    _, rows, cols = theirs["image_grid_thw"][0].tolist()
    values = np.rint(theirs["pixel_values"].reshape(-1, 3, 2, 256)[:, :, 0] * 255)
    assert np.array_equal(
        prepare(source, (cols * 16, rows * 16)).pixels, values.reshape(-1, 768).astype(np.uint8)
    )


@pytest.mark.parametrize("shape", [(32, 48, 3), (16, 32, 3), (0, 32, 3)])
def test_patchify_refuses_broken_blocks(shape: tuple[int, ...]) -> None:
    with pytest.raises(OptionError, match="is not made of 32×32 px blocks"):
        patchify(np.zeros(shape, np.uint8))


def test_prepare_and_its_key() -> None:
    source = picture()
    patches = prepare(source, (96, 64))
    assert patches.grid == Grid(1, 4, 6)
    assert patches.pixels.shape == (24, 768)
    assert re.fullmatch("[0-9a-f]{64}", patches.key)
    assert patches.key == patches_key(source, (96, 64))
    others = {
        patches_key(source, (64, 96)),
        patches_key(source, (96, 64), "lanczos"),
        patches_key(source, (96, 64), patch_size=32, merge_size=1),
        patches_key(dataclasses.replace(source, key="cd" * 32), (96, 64)),
        patches_key(dataclasses.replace(source, pixels=source.pixels[::2, ::2]), (96, 64)),
    }
    assert len(others) == 5
    assert patches.key not in others
