from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.qwen3_vl import modeling_qwen3_vl as reference
from transformers.models.qwen3_vl.configuration_qwen3_vl import (
    Qwen3VLTextConfig,
    Qwen3VLVisionConfig,
)
from transformers.vision_utils import (
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
)

from qwink.errors import CheckpointError, PromptError
from qwink.model.rope import (
    interpolate_positions,
    mrope_positions,
    rope_table,
    vision_positions,
    vision_rope,
)
from qwink.types import Grid, ImageSpan

GRIDS = st.builds(
    lambda t, h, w: Grid(t, 2 * h, 2 * w), st.just(1), st.integers(1, 12), st.integers(1, 12)
)
CLIPS = st.builds(
    lambda t, h, w: Grid(t, 2 * h, 2 * w), st.integers(1, 3), st.integers(1, 30), st.integers(1, 30)
)


# Text before, between and after images. Not adjacent: Transformers merges adjacent images.
@given(
    first=st.integers(0, 5),
    rest=st.lists(st.tuples(GRIDS, st.integers(1, 5)), max_size=4),
    last=st.booleans(),
)
def test_positions_equal_transformers(first: int, rest: list[tuple[Grid, int]], last: bool) -> None:
    types = [0] * first
    spans = []
    for index, (grid, text) in enumerate(rest):
        length = grid.num_patches // 4
        spans.append(ImageSpan(len(types), length, grid, "key"))
        types += [1] * length
        if last or index + 1 < len(rest):  # else the prompt ends with an image
            types += [0] * text
    if not types:
        return
    config = SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2))
    model: Any = SimpleNamespace(
        config=config,
        get_vision_position_ids=lambda *args, **kwargs: (
            reference.Qwen3VLModel.get_vision_position_ids(model, *args, **kwargs)
        ),
    )
    grids = torch.tensor([[span.grid.t, span.grid.h, span.grid.w] for span in spans])
    expected, delta = reference.Qwen3VLModel.get_rope_index(
        model, torch.zeros(1, len(types), dtype=torch.long), torch.tensor([types]), grids
    )
    positions, next_position = mrope_positions(len(types), spans)
    assert np.array_equal(positions, expected[:, 0].numpy())
    assert next_position == len(types) + int(delta)


def test_positions_by_hand() -> None:
    positions, next_position = mrope_positions(8, [ImageSpan(1, 6, Grid(1, 4, 6), "key")])
    assert positions.tolist() == [
        [0, 1, 1, 1, 1, 1, 1, 4],
        [0, 1, 1, 1, 2, 2, 2, 4],
        [0, 1, 2, 3, 1, 2, 3, 4],
    ]
    assert next_position == 5
    assert mrope_positions(0, [])[1] == 0


def test_adjacent_images_have_separate_positions() -> None:
    spans = [ImageSpan(0, 1, Grid(1, 2, 2), "a"), ImageSpan(1, 1, Grid(1, 2, 2), "b")]
    assert mrope_positions(2, spans)[0].tolist() == [[0, 1]] * 3


@pytest.mark.parametrize(
    ("spans", "cause"),
    [
        ([ImageSpan(0, 4, Grid(1, 4, 4), ""), ImageSpan(3, 4, Grid(1, 4, 4), "")], "overlap"),
        ([ImageSpan(8, 4, Grid(1, 4, 4), "")], "leave"),
        ([ImageSpan(0, 5, Grid(1, 4, 4), "")], "takes 4 tokens, not 5"),
    ],
)
def test_invalid_spans(spans: list[ImageSpan], cause: str) -> None:
    with pytest.raises(PromptError, match=cause):
        mrope_positions(10, spans)


@pytest.mark.parametrize(
    ("head_dim", "theta", "sections"),
    [(128, 5e6, [24, 20, 20]), (48, 1e4, [8, 8, 8]), (64, 1e6, [12, 10, 10])],
)
def test_rope_table_equals_transformers(head_dim: int, theta: float, sections: list[int]) -> None:
    config = Qwen3VLTextConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": theta, "mrope_section": sections},
    )
    module = reference.Qwen3VLTextRotaryEmbedding(config)
    positions = np.random.default_rng(0).integers(0, 4000, (3, 50))
    cos, sin = module(torch.zeros(1), torch.from_numpy(positions)[:, None])
    ours = rope_table(positions, head_dim, theta, sections)
    for table, expected in zip(ours, (cos, sin), strict=True):
        assert table.dtype == np.float32
        # An error in the last bit of a frequency becomes this large at position 4000.
        np.testing.assert_allclose(table, expected[0, :, : head_dim // 2].numpy(), atol=5e-4)
    small = rope_table(positions % 16, head_dim, theta, sections)
    cos, _ = module(torch.zeros(1), torch.from_numpy(positions % 16)[:, None])
    np.testing.assert_allclose(small[0], cos[0, :, : head_dim // 2].numpy(), atol=2e-6)


def test_sections_must_add_up() -> None:
    with pytest.raises(CheckpointError, match="mrope_section"):
        rope_table(np.zeros((3, 1), np.int64), 128, 1e4, [24, 20, 19])


@given(grid=CLIPS)
@settings(max_examples=30, deadline=None)
def test_vision_tables_equal_transformers(grid: Grid) -> None:
    thw = torch.tensor([[grid.t, grid.h, grid.w]])
    positions = get_vision_position_ids(thw, 2)
    assert np.array_equal(vision_positions(grid), positions.numpy())
    config = Qwen3VLVisionConfig(hidden_size=64, num_heads=2)
    module = reference.Qwen3VLVisionRotaryEmbedding(config)
    cos, sin = module(torch.zeros(1), positions)
    for table, expected in zip(vision_rope(grid, head_dim=32), (cos, sin), strict=True):
        assert table.dtype == np.float32
        np.testing.assert_allclose(table, expected[:, :16].numpy(), atol=1e-5)


@given(grid=CLIPS, side=st.integers(1, 48))
@settings(max_examples=50, deadline=None)
def test_learned_positions_equal_transformers(grid: Grid, side: int) -> None:
    table = np.random.default_rng(side).standard_normal((side * side, 5)).astype(np.float32)
    indices, weights = get_vision_interpolation_indices_and_weights(
        torch.tensor([[grid.t, grid.h, grid.w]]),
        num_grid_per_side=side,
        align_corners=True,
        spatial_merge_size=2,
    )
    expected = (torch.from_numpy(table)[indices] * weights[..., None]).sum(1)
    ours = interpolate_positions(table, grid)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, expected.numpy(), atol=2e-5)


def test_a_table_that_is_not_square() -> None:
    with pytest.raises(CheckpointError, match="square"):
        interpolate_positions(np.zeros((12, 4), np.float32), Grid(1, 2, 2))
