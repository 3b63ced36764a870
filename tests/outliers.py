"""Planting the outliers that trained models have into a random checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLForConditionalGeneration

SINK = 11  # the token id with massive activations
MASSIVE = 3000.0  # before norms shrink it: about 900 in its MLP, where others have 10 or so
LOUD_CHANNELS = (5, 17, 40)
LOUDNESS = 30.0


def plant_outliers(folder: Path, *, massive: bool = True, loud: bool = True) -> Any:
    """Changes the checkpoint in `folder`, one fp32 file; returns the reference, loaded anew.

    `massive`: one unit of the first MLP fires for token SINK alone, hundreds of times as strongly
    as others do. `loud`: in the text model's norms a few channels weigh thirty times as much.
    """
    path = folder / "model.safetensors"
    tensors = load_file(path)
    text = {
        name.removeprefix("model.language_model."): tensor
        for name, tensor in tensors.items()
        if name.startswith("model.language_model.")
    }
    if massive:
        # Only SINK has anything in channel 0 when the first MLP reads it...
        text["embed_tokens.weight"][:, 0] = 0
        text["embed_tokens.weight"][SINK, 0] = 4
        text["layers.0.self_attn.o_proj.weight"][0] = 0
        # ... and one unit reads channel 0 alone.
        strength = MASSIVE**0.5 / 4
        for name in ("gate_proj", "up_proj"):
            row = text[f"layers.0.mlp.{name}.weight"][0]
            row[:] = 0
            row[0] = strength
    if loud:
        for name, tensor in text.items():
            if name.startswith("layers.") and name.endswith("layernorm.weight"):
                tensor[list(LOUD_CHANNELS)] *= LOUDNESS
    save_file(tensors, path, {"format": "pt"})
    reference = Qwen3VLForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return reference.eval()
