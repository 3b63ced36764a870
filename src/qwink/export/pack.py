"""Weights as our own operators read them (`qwink/native/kernels.h`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qwink.export.quantize import by_rows, quantize_blocks
from qwink.model.weights import Rows

Float = NDArray[np.float32]

PANEL, TILE, CHUNK = 32, 16, 64  # outputs of a panel and of a tile, inputs of a tile


def pack_int8(weight: Float | Rows) -> tuple[NDArray[np.int8], Float, NDArray[np.int32]]:
    """Symmetric int8 with one scale per output, in panels of 32 outputs.

    weight [N, K] → values [N / 32, K / 64, 2, 16, 64], scales [N], sums of each output's values
    [N], N and K rounded up with zeros. A tile [16, 64] holds inputs 4r to 4r + 3 of its 16 outputs
    in row r, as our kernels multiply them.
    """
    num_outputs, num_inputs = weight.shape
    num_panels, num_chunks = -(-num_outputs // PANEL), -(-num_inputs // CHUNK)
    packed = np.zeros((num_panels, num_chunks, PANEL // TILE, TILE, CHUNK), np.int8)
    scales = np.zeros(num_panels * PANEL, np.float32)
    sums = np.zeros(num_panels * PANEL, np.int32)

    def work(start: int, stop: int) -> None:
        rows = weight[start:stop]
        scale = np.maximum(np.abs(rows).max(axis=1), 1e-12) / 127
        num_rows = -(-(stop - start) // PANEL) * PANEL
        values = np.zeros((num_rows, num_chunks * CHUNK), np.int8)
        values[: stop - start, :num_inputs] = np.rint(rows / scale[:, None])
        scales[start:stop] = scale
        sums[start : start + num_rows] = values.sum(axis=1, dtype=np.int32)
        # [panel, tile, output, chunk, r, 4] → [panel, chunk, tile, r, output, 4]
        split = values.reshape(-1, PANEL // TILE, TILE, num_chunks, CHUNK // 4, 4)
        tiles = split.transpose(0, 3, 1, 4, 2, 5)
        first = start // PANEL
        packed[first : first + tiles.shape[0]] = tiles.reshape(-1, *packed.shape[1:])

    by_rows(work, num_outputs)
    return packed, scales, sums


def pack_int4(weight: Float | Rows, block: int) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
    """4-bit blocks as `quantize_blocks` makes them, in tiles of 16 outputs.

    weight [N, K] → values [N / 16, K / 8, 64], scales [N / 16, K / block, 16], N rounded up with
    zeros. 64 bytes hold, for each output, eight neighbouring inputs, the first four in the low
    halves of its four bytes.
    """
    num_outputs, num_inputs = weight.shape
    num_tiles = -(-num_outputs // TILE)
    packed, scales = quantize_blocks(weight, 4, block)
    values = np.full((num_tiles, num_inputs // 8, TILE, 4), 0x88, np.uint8)  # zeros
    columns = np.zeros((num_tiles, num_inputs // block, TILE), np.float16)

    def work(start: int, stop: int) -> None:
        for first in range(start, stop, TILE):
            rows = slice(first, min(first + TILE, stop))
            # Eight inputs of an output are four bytes of two neighbours each.
            pairs = packed[rows].reshape(-1, num_inputs // 8, 4).swapaxes(0, 1)
            a, b = pairs[..., :2], pairs[..., 2:]
            tile = values[first // TILE, :, : pairs.shape[1]]
            tile[..., ::2] = (a & 15) | (b << 4)
            tile[..., 1::2] = (a >> 4) | (b & 0xF0)
            columns[first // TILE, :, : pairs.shape[1]] = scales[rows].T

    by_rows(work, num_outputs)
    return values.reshape(num_tiles, num_inputs // 8, CHUNK), columns


def interleave(first: Float, second: Float, run: int) -> Float:
    """Rows of both [N, K] in turn, `run` of each → [2N, K], N rounded up to whole runs."""
    num_rows, num_inputs = first.shape
    num_runs = -(-num_rows // run)
    joined = np.zeros((num_runs, 2, run, num_inputs), np.float32)
    for index, matrix in enumerate((first, second)):
        padded = np.zeros((num_runs * run, num_inputs), np.float32)
        padded[:num_rows] = matrix
        joined[:, index] = padded.reshape(num_runs, run, num_inputs)
    return joined.reshape(-1, num_inputs)


def pad_outputs(values: Float) -> Float:
    """A value per output, with zeros up to whole panels."""
    padded = np.zeros(-(-values.shape[0] // PANEL) * PANEL, np.float32)
    padded[: values.shape[0]] = values
    return padded
