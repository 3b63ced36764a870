"""Operations and bytes of a request, computed from the model's configuration.

Shapes: P patches, V = P / merge² image tokens, S prompt tokens. A multiplication and an addition
are two operations. Norms, activations and rotations, less than 1 % of the total, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from qwink.export.linear import fits_4_bits
from qwink.export.recipe import FP32, Recipe, Scheme
from qwink.export.text import decode_schemes, uniform_schemes
from qwink.model.config import ModelConfig, TextConfig
from qwink.native import Layout, cache_type

FLOAT_BYTES = 4
HALF_BYTES = 2


@dataclass(frozen=True, slots=True)
class Work:
    """Operations by number format, and bytes of weights, keys and values read.

    `int8_flops` include products with 4-bit weights, which the kernels widen to 8 bits.
    """

    int8_flops: int = 0
    float_flops: int = 0
    read_bytes: int = 0

    @property
    def flops(self) -> int:
        return self.int8_flops + self.float_flops

    def __add__(self, other: Work) -> Work:
        return Work(
            self.int8_flops + other.int8_flops,
            self.float_flops + other.float_flops,
            self.read_bytes + other.read_bytes,
        )

    def __mul__(self, times: int) -> Work:
        return Work(self.int8_flops * times, self.float_flops * times, self.read_bytes * times)


def weight_bytes(num_outputs: int, num_inputs: int, scheme: Scheme, layout: Layout) -> int:
    """Size of a weight matrix with its scales, as an export with `layout` stores it."""
    ours = layout != "onnxruntime"
    if scheme.kind == "fp32":
        return num_outputs * num_inputs * FLOAT_BYTES
    eight_bits = scheme.kind == "w8a8" or scheme.bits == 8 or not fits_4_bits(scheme, num_inputs)
    if scheme.kind == "w8a8" or (ours and eight_bits):
        return num_outputs * (num_inputs + FLOAT_BYTES * (2 if ours else 1))  # ours store sums, too
    blocks = -(-num_inputs // scheme.block)
    scale_bytes = HALF_BYTES if ours else FLOAT_BYTES
    return num_outputs * blocks * (scheme.block * scheme.bits // 8 + scale_bytes)


def product(rows: int, num_outputs: int, num_inputs: int, scheme: Scheme, layout: Layout) -> Work:
    """[rows, num_inputs] times a weight matrix, which is read once."""
    flops = 2 * rows * num_outputs * num_inputs
    read = weight_bytes(num_outputs, num_inputs, scheme, layout)
    return Work(0, flops, read) if scheme.kind == "fp32" else Work(flops, 0, read)


def encode_work(config: ModelConfig, recipe: Recipe, layout: Layout, num_patches: int) -> Work:
    """The vision encoder over one image."""
    vision, scheme = config.vision, recipe.vision
    hidden, wide = vision.hidden_size, vision.intermediate_size
    merged = hidden * vision.merge_size**2
    num_tokens = num_patches // vision.merge_size**2
    # Both frames of a still image are equal, so the export adds the weights of the two frames.
    patch = product(num_patches, hidden, vision.in_channels * vision.patch_size**2, FP32, layout)
    shapes = ((3 * hidden, hidden), (hidden, hidden), (wide, hidden), (hidden, wide))
    layer = _sum(product(num_patches, *shape, scheme, layout) for shape in shapes)
    layer += Work(float_flops=4 * num_patches**2 * hidden)  # attention: scores, weighted sum
    merger = product(num_tokens, merged, merged, scheme, layout)
    merger += product(num_tokens, vision.out_hidden_size, merged, scheme, layout)
    return patch + layer * vision.depth + merger * (1 + len(vision.deepstack_layers))


def prefill_work(config: ModelConfig, recipe: Recipe, layout: Layout, num_tokens: int) -> Work:
    """A whole prompt, and the logits of its last token."""
    num_layers = config.text.num_layers
    schemes = (
        decode_schemes(num_layers, recipe)
        if recipe.prefill is None
        else uniform_schemes(num_layers, recipe.prefill)
    )
    work = _text_work(config, schemes, layout, num_tokens, 0)
    return work + _head_work(config.text, recipe, layout)


def decode_work(config: ModelConfig, recipe: Recipe, layout: Layout, num_cached: int) -> Work:
    """One more token after `num_cached` ones."""
    schemes = decode_schemes(config.text.num_layers, recipe)
    work = _text_work(config, schemes, layout, 1, num_cached)
    return work + _head_work(config.text, recipe, layout)


def kv_bytes_per_token(config: ModelConfig, layout: Layout) -> int:
    """Keys and values of all layers."""
    text = config.text
    width = np.dtype(cache_type(layout)).itemsize
    return 2 * text.num_layers * text.num_kv_heads * text.head_dim * width


def _text_work(
    config: ModelConfig,
    schemes: list[dict[str, Scheme]],
    layout: Layout,
    num_tokens: int,
    num_cached: int,
) -> Work:
    text = config.text
    hidden, wide = text.hidden_size, text.intermediate_size
    queries, keys = text.num_heads * text.head_dim, text.num_kv_heads * text.head_dim
    before = {"q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden)}
    after = {
        "o_proj": (hidden, queries),
        "gate_proj": (wide, hidden),
        "up_proj": (wide, hidden),
        "down_proj": (hidden, wide),
    }
    # Each token attends to itself and the tokens before it: scores and weighted sum.
    pairs = num_tokens * num_cached + num_tokens * (num_tokens + 1) // 2
    read = (num_cached + num_tokens) * kv_bytes_per_token(config, layout)
    work = Work(read_bytes=read)
    for layer, scheme in enumerate(schemes):
        # After the last layer's attention only the last token is computed.
        rows = 1 if layer + 1 == text.num_layers else num_tokens
        for shapes, count in ((before, num_tokens), (after, rows)):
            for name, shape in shapes.items():
                work += product(count, *shape, scheme[name], layout)
        work += Work(float_flops=4 * pairs * queries)
    return work


def _head_work(text: TextConfig, recipe: Recipe, layout: Layout) -> Work:
    return product(1, text.vocab_size, text.hidden_size, recipe.head, layout)


def _sum(works: Iterable[Work]) -> Work:
    return sum(works, Work())
