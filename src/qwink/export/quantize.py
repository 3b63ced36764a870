"""Weight quantisation in NumPy. Weights come as published: [N, K] = [outputs, inputs], float32."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from qwink.model.weights import Rows

Float = NDArray[np.float32]

ROWS_PER_CHUNK = 64  # 64 rows × 6144 inputs stay in the second-level cache


def by_rows(work: Callable[[int, int], None], num_rows: int) -> None:
    """Run `work(start, stop)` over chunks of rows on all cores; NumPy releases the GIL."""
    starts = range(0, num_rows, ROWS_PER_CHUNK)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda s: work(s, min(s + ROWS_PER_CHUNK, num_rows)), starts))


def quantize_columns(weight: Float | Rows, limit: int = 127) -> tuple[NDArray[np.int8], Float]:
    """Symmetric int8 with one scale per output; the largest magnitude becomes `limit`.

    Returns ([K, N] int8, [N] scales): the layout of a MatMul's right-hand side.
    """
    num_outputs, num_inputs = weight.shape
    quantized = np.empty((num_inputs, num_outputs), np.int8)
    scales = np.empty(num_outputs, np.float32)

    def work(start: int, stop: int) -> None:
        rows = weight[start:stop]
        scale = np.maximum(np.abs(rows).max(axis=1), 1e-12) / limit
        quantized[:, start:stop] = np.rint(rows / scale[:, None]).astype(np.int8).T
        scales[start:stop] = scale

    by_rows(work, num_outputs)
    return quantized, scales


def quantize_blocks(weight: Float | Rows, bits: int, block: int) -> tuple[NDArray[np.uint8], Float]:
    """Symmetric blocks of `bits` (4 or 8) along the inputs, each with the scale of least error.

    Returns (packed [N, K / block, block * bits / 8], scales [N, K / block]) as MatMulNBits takes
    them: unsigned values whose zero is 2^(bits - 1), two 4-bit values a byte, the low half first.
    Inputs are padded with zeros to a multiple of `block`.
    """
    num_outputs, num_inputs = weight.shape
    num_blocks = -(-num_inputs // block)
    packed = np.empty((num_outputs, num_blocks, block * bits // 8), np.uint8)
    scales = np.empty((num_outputs, num_blocks), np.float32)

    def work(start: int, stop: int) -> None:
        rows = np.zeros((stop - start, num_blocks * block), np.float32)
        rows[:, :num_inputs] = weight[start:stop]
        blocks = rows.reshape(stop - start, num_blocks, block)
        values, scales[start:stop] = _round_blocks(blocks, bits)
        packed[start:stop] = values if bits == 8 else values[..., ::2] | (values[..., 1::2] << 4)

    by_rows(work, num_outputs)
    return packed, scales


def _round_blocks(blocks: Float, bits: int) -> tuple[NDArray[np.uint8], Float]:
    """Round [n, b, block] to unsigned values; scales [n, b].

    The value of largest magnitude maps to about -2^(bits-1), the end with one step more, as in
    llama.cpp's Q4_0. At 4 bits several maps are tried, each with its least-squares scale
    d = Σ w q / Σ q², and the one that explains most of the block, (Σ w q)² / Σ q², is kept.
    """
    half = 2 ** (bits - 1)
    low, high = blocks.min(-1), blocks.max(-1)
    extreme = np.where(-low > high, low, high)  # [n, b], signed
    extreme = np.where(np.abs(extreme) < 1e-12, np.float32(1e-12), extreme)
    if bits == 8:
        scale = -extreme / half
        values = np.rint(blocks / scale[..., None])
        return (np.clip(values, -half, half - 1) + half).astype(np.uint8), scale

    best = np.full(extreme.shape, -1, np.float32)
    best_values = np.zeros(blocks.shape, np.float32)
    scale = np.zeros(extreme.shape, np.float32)
    for reach in (8.0, 7.4, 6.9, 8.6, 9.3):
        values = blocks * (-reach / extreme)[..., None]
        np.clip(np.rint(values, out=values), -half, half - 1, out=values)
        dot = np.einsum("nbk,nbk->nb", blocks, values)
        norm = np.einsum("nbk,nbk->nb", values, values)
        norm = np.maximum(norm, 1e-12)
        gain = dot * dot / norm
        better = gain > best
        best = np.where(better, gain, best)
        scale = np.where(better, dot / norm, scale)
        np.copyto(best_values, values, where=better[..., None])
    return (best_values + half).astype(np.uint8), scale


def dequantize_blocks(
    packed: NDArray[np.uint8], scales: Float, bits: int, num_inputs: int
) -> Float:
    """The float32 weight [N, K] that `quantize_blocks` stands for; for tests and reports."""
    if bits == 4:
        values = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:2], -1)
    else:
        values = packed
    weight = (values.astype(np.float32) - 2 ** (bits - 1)) * scales[..., None]
    flat: Float = weight.reshape(packed.shape[0], -1)
    return flat[:, :num_inputs]
