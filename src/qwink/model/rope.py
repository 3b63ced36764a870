"""Positions: M-RoPE of the text model; 2-D RoPE and learned positions of the vision encoder.

Follows `models/qwen3_vl` of Transformers; M-RoPE was introduced with Qwen2-VL (Wang et al., 2024,
arXiv:2409.12191), its interleaved layout with Qwen3-VL. RoPE itself: Su et al., 2021,
arXiv:2104.09864. All tables are float32 with one angle per pair of dimensions; an engine that
needs one per dimension repeats them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qwink.errors import CheckpointError, PromptError
from qwink.types import Grid, ImageSpan

Floats = NDArray[np.float32]


def mrope_positions(
    num_tokens: int, spans: Sequence[ImageSpan], merge_size: int = 2
) -> tuple[NDArray[np.int64], int]:
    """Time, height and width positions of the tokens [3, S], and the position after the last.

    A text token increases all three positions by one. The positions of an image's tokens are their
    coordinates in the merged grid, added to the position after the preceding text. The text after
    an image begins at the image's first position plus the longer side of the grid
    (`get_rope_index` in Transformers). Raises PromptError for spans that are out of order, out of
    range, or do not have as many tokens as their grid.
    """
    pieces: list[NDArray[np.int64]] = []
    token = position = 0
    for span in spans:
        if span.start < token or span.start + span.length > num_tokens:
            raise PromptError(
                f"image tokens {span.start} to {span.start + span.length} overlap others or leave "
                f"the {num_tokens} tokens; pass the spans that build_prompt made"
            )
        if span.length * merge_size**2 != span.grid.num_patches:
            raise PromptError(
                f"an image of {span.grid.num_patches} patches takes "
                f"{span.grid.num_patches // merge_size**2} tokens, not {span.length}"
            )
        pieces.append(_text(position, span.start - token))
        position += span.start - token
        t, h, w = span.grid.t, span.grid.h // merge_size, span.grid.w // merge_size
        pieces.append(np.indices((t, h, w), dtype=np.int64).reshape(3, -1) + position)
        position += max(h, w)
        token = span.start + span.length
    pieces.append(_text(position, num_tokens - token))
    positions = np.concatenate(pieces, axis=1)
    return positions, int(positions.max(initial=-1)) + 1


def _text(start: int, length: int) -> NDArray[np.int64]:
    return np.broadcast_to(np.arange(start, start + length, dtype=np.int64), (3, length))


def _inverse_frequencies(dim: int, theta: float) -> Floats:
    # The reference computes the power in float32.
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    powers: Floats = np.power(np.float32(theta), exponents)
    return np.float32(1.0) / powers


def rope_table(
    positions: NDArray[np.int64], head_dim: int, theta: float, sections: Sequence[int]
) -> tuple[Floats, Floats]:
    """Cosines and sines of the text model, [S, head_dim / 2] each, for positions [3, S].

    Interleaved M-RoPE: frequency i uses the height position if i % 3 = 1 and i < 3 · sections[1],
    the width position if i % 3 = 2 and i < 3 · sections[2], else the time position. `sections` is
    (time, height, width), [24, 20, 20] in Qwen3-VL. Raises CheckpointError if the sections do not
    add up to head_dim / 2.
    """
    if len(sections) != 3 or sum(sections) != head_dim // 2:
        raise CheckpointError(
            f"mrope_section {list(sections)} must be three numbers that add up to half of "
            f"head_dim {head_dim}; check config.json"
        )
    axis = np.zeros(head_dim // 2, dtype=np.intp)
    for dim in (1, 2):
        axis[dim : 3 * sections[dim] : 3] = dim
    angles = positions[axis].T.astype(np.float32) * _inverse_frequencies(head_dim, theta)
    return np.cos(angles), np.sin(angles)


def vision_positions(grid: Grid, merge_size: int = 2) -> NDArray[np.int64]:
    """Row and column of each patch, [P, 2], in merge order: block by block, row by row in each."""
    blocks = (grid.h // merge_size, merge_size, grid.w // merge_size, merge_size)
    rows, columns = np.indices((grid.h, grid.w), dtype=np.int64)
    frame = np.stack([x.reshape(blocks).transpose(0, 2, 1, 3).ravel() for x in (rows, columns)], 1)
    return np.tile(frame, (grid.t, 1))


def vision_rope(
    grid: Grid, head_dim: int, theta: float = 10000.0, merge_size: int = 2
) -> tuple[Floats, Floats]:
    """Cosines and sines of the vision encoder, [P, head_dim / 2] each, patches in merge order.

    The first half of the frequencies uses the row, the second half the column
    (`Qwen3VLVisionRotaryEmbedding`).
    """
    frequencies = _inverse_frequencies(head_dim // 2, theta)
    positions = vision_positions(grid, merge_size).astype(np.float32)
    angles = (positions[:, :, None] * frequencies).reshape(grid.num_patches, head_dim // 2)
    return np.cos(angles), np.sin(angles)


def interpolate_positions(table: Floats, grid: Grid, merge_size: int = 2) -> Floats:
    """Learned positions [n * n, D] resampled to the grid: [P, D], patches in merge order.

    Bilinear with aligned corners: the first and last patch of an axis take the table's first and
    last entry, as in Transformers' `get_vision_interpolation_indices_and_weights`.
    Raises CheckpointError if the table is not square.
    """
    side = round(table.shape[0] ** 0.5)
    if side * side != table.shape[0]:
        raise CheckpointError(
            f"{table.shape[0]} learned positions do not form a square; check the vision config"
        )
    positions = vision_positions(Grid(1, grid.h, grid.w), merge_size)
    rows = _taps(positions[:, 0], grid.h, side)
    columns = _taps(positions[:, 1], grid.w, side)
    frame = np.zeros((len(positions), table.shape[1]), dtype=np.float32)
    for row, row_weight in rows:
        for column, column_weight in columns:
            frame += table[row * side + column] * (row_weight * column_weight)[:, None]
    return np.tile(frame, (grid.t, 1))


def _taps(
    index: NDArray[np.int64], size: int, side: int
) -> tuple[tuple[NDArray[np.int64], Floats], tuple[NDArray[np.int64], Floats]]:
    """The two table entries to interpolate between, with their weights, for each index."""
    source = index.astype(np.float32) * np.float32(side - 1) / np.float32(max(size - 1, 1))
    low = np.floor(source).astype(np.int64)
    fraction = source - low.astype(np.float32)
    return (low, 1 - fraction), (np.minimum(low + 1, side - 1), fraction)
