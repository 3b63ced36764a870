"""A checkpoint's weights in Transformers' Qwen3-VL modules, without an export.

Only the small modules are used: linear layers, norms and MLPs. `text` and `vision` compute the
passes with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from qwink.engine.torch.quantize import quantize
from qwink.model.config import ModelConfig
from qwink.model.fold import fold_frame_embedding, fold_patch_embedding
from qwink.model.weights import Weights, expected_tensors

_VISION, _TEXT = "model.visual", "model.language_model"
_LAYERS = f"{_TEXT}.layers."


@dataclass(frozen=True, slots=True, eq=False)
class Modules:
    """Transformers' modules on the device; patch embedding and positions are float32."""

    visual: Any  # blocks, merger, deepstack_merger_list
    layers: Any  # of the text model
    norm: Any
    embed_tokens: Tensor  # [vocab, D]
    head: Any
    # Weight [D, values of a patch] and bias [D], for bytes, by the number of values: those of an
    # image and those of frames of a video.
    patch_embeddings: dict[int, tuple[Tensor, Tensor]]
    positions: np.ndarray[Any, np.dtype[np.float32]]  # learned, [n * n, D]


def weight_bytes(config: ModelConfig, dtype: torch.dtype, quantized: bool) -> int:
    """Bytes of a model's weights; its text layers' matrices are in int8 if `quantized`."""
    total = 0
    for name, shape in expected_tensors(config).items():
        in_int8 = quantized and name.startswith(_LAYERS) and len(shape) == 2
        total += int(np.prod(shape)) * (1 if in_int8 else dtype.itemsize)
    return total


def load_modules(
    folder: Path,
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    quantized: bool = False,
) -> Modules:
    """Read a checkpoint to the device, module by module.

    If `quantized`, each text layer is quantized before the next one is read: so less memory is
    needed at once. Raises CheckpointError.
    """
    with Weights(folder) as weights, torch.device("meta"):
        weights.check(config)
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig.from_pretrained(folder))
        model.requires_grad_(False).eval()
        with torch.device("cpu"):
            for prefix, module in _parts(model):
                names = dict(module.named_parameters())
                state = {
                    name: _tensor(weights, f"{prefix}.{name}").to(device, dtype) for name in names
                }
                module.load_state_dict(state, assign=True)
                if quantized and prefix.startswith(_LAYERS):
                    quantize(module)
            weight = weights.read(f"{_VISION}.patch_embed.proj.weight")
            bias = weights.read(f"{_VISION}.patch_embed.proj.bias")
            embeddings = {}
            for fold in (fold_patch_embedding, fold_frame_embedding):
                folded = [torch.from_numpy(x) for x in fold(weight, bias, config.preprocessor)]
                embeddings[folded[0].shape[1]] = folded[0].to(device), folded[1].to(device)
            text, embedding = model.model.language_model, model.model.language_model.embed_tokens
            if config.text.tie_word_embeddings:
                model.lm_head.weight = embedding.weight
            return Modules(
                model.model.visual,
                text.layers,
                text.norm,
                embedding.weight.detach(),
                model.lm_head,
                embeddings,
                weights.read(f"{_VISION}.pos_embed.weight"),
            )


def _parts(model: Any) -> Iterator[tuple[str, nn.Module]]:
    """Prefix and module of all weights that are used unchanged; a tied head has no weights."""
    visual, text = model.model.visual, model.model.language_model
    yield f"{_VISION}.merger", visual.merger
    for index, merger in enumerate(visual.deepstack_merger_list):
        yield f"{_VISION}.deepstack_merger_list.{index}", merger
    for index, block in enumerate(visual.blocks):
        yield f"{_VISION}.blocks.{index}", block
    for index, layer in enumerate(text.layers):
        yield f"{_TEXT}.layers.{index}", layer
    yield f"{_TEXT}.norm", text.norm
    yield f"{_TEXT}.embed_tokens", text.embed_tokens
    if not model.config.tie_word_embeddings:
        yield "lm_head", model.lm_head


def _tensor(weights: Weights, name: str) -> Tensor:
    """A copy of a tensor in its stored type. A view would keep the file mapped."""
    raw, dtype = weights.read_raw(name)
    values = torch.from_numpy(raw.copy())
    return values.view(torch.bfloat16) if dtype == "BF16" else values
