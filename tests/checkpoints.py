"""Writes small random Qwen3-VL checkpoints with transformers, for parity tests.

Norms and biases are random too, attention is peaked, and logits have a standard deviation of 4,
so that an error in any part changes the logits.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

# Used if the folder has no tokenizer.json.
SPECIAL_IDS = {
    "<|endoftext|>": 0,
    "<|im_end|>": 2,
    "<|vision_start|>": 3,
    "<|vision_end|>": 4,
    "<|image_pad|>": 5,
    "<|video_pad|>": 6,
}
_LOGIT_STD = 4.0


def write_checkpoint(
    folder: Path,
    *,
    seed: int = 0,
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16",
    shards: bool = False,
    tied: bool = True,
    style: Literal["published", "transformers5"] = "published",
    vocab_size: int = 512,
    text_layers: int = 4,
    text_hidden_size: int = 96,
    text_intermediate_size: int = 160,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    vision_depth: int = 4,
    vision_hidden_size: int = 64,
    vision_intermediate_size: int = 96,
    vision_num_heads: int = 2,
    deepstack_layers: tuple[int, ...] = (0, 1, 2),
    num_position_embeddings: int = 64,
    max_position_embeddings: int = 4096,
    attention_bias: bool = False,
) -> Any:
    """Write a checkpoint to `folder`; returns the reference model, fp32, eager, in eval mode.

    The reference is loaded back, so it has the weights as rounded to `dtype`. A tokenizer.json
    already in the folder decides the special tokens' ids; `vocab_size` grows to hold them.
    `style` is how config.json spells RoPE: as published, or as transformers 5 writes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ids, smallest_vocab = _special_ids(folder)
    if smallest_vocab >= vocab_size:
        vocab_size = (smallest_vocab // 64 + 1) * 64  # padded, as in published checkpoints
    values: dict[str, Any] = {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "image_token_id": ids["<|image_pad|>"],
        "model_type": "qwen3_vl",
        "text_config": {
            "attention_bias": attention_bias,
            "attention_dropout": 0.0,
            "bos_token_id": ids["<|endoftext|>"],
            "dtype": dtype,
            "eos_token_id": ids["<|im_end|>"],
            "head_dim": 32,
            "hidden_act": "silu",
            "hidden_size": text_hidden_size,
            "initializer_range": 0.02,
            "intermediate_size": text_intermediate_size,
            "max_position_embeddings": max_position_embeddings,
            "model_type": "qwen3_vl_text",
            "num_attention_heads": num_heads,
            "num_hidden_layers": text_layers,
            "num_key_value_heads": num_kv_heads,
            "rms_norm_eps": 1e-06,
            "rope_scaling": {
                "mrope_interleaved": True,
                "mrope_section": [6, 5, 5],
                "rope_type": "default",
            },
            "rope_theta": 5000000,
            "tie_word_embeddings": tied,
            "use_cache": True,
            "vocab_size": vocab_size,
        },
        "tie_word_embeddings": tied,
        "transformers_version": "4.57.0.dev0",
        "video_token_id": ids["<|video_pad|>"],
        "vision_config": {
            "deepstack_visual_indexes": list(deepstack_layers),
            "depth": vision_depth,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": vision_hidden_size,
            "in_channels": 3,
            "initializer_range": 0.02,
            "intermediate_size": vision_intermediate_size,
            "model_type": "qwen3_vl",
            "num_heads": vision_num_heads,
            "num_position_embeddings": num_position_embeddings,
            "out_hidden_size": text_hidden_size,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        "vision_end_token_id": ids["<|vision_end|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
    }
    # A copy, because transformers changes the dict that it gets.
    config = Qwen3VLConfig.from_dict(json.loads(json.dumps(values)))
    with torch.random.fork_rng():
        model = Qwen3VLForConditionalGeneration(config)
    _randomize(model, seed)
    size = "300KB" if shards else "5GB"
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=size)
    if style == "published":
        _write_json(folder / "config.json", values)
    _write_json(folder / "generation_config.json", _generation_config(ids))
    _write_json(folder / "preprocessor_config.json", _PREPROCESSOR)
    reference = Qwen3VLForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return reference.eval()


def _randomize(model: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            mean, std = _moments(name, parameter.shape)
            parameter.copy_(mean + std * noise)
        model.tie_weights()


def _moments(name: str, shape: torch.Size) -> tuple[float, float]:
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return 1.5, 0.2  # peaked attention
    if len(shape) == 1:
        return (1.0, 0.2) if name.endswith("weight") else (0.0, 0.2)
    if "pos_embed" in name:
        return 0.0, 0.5
    fan_in = math.prod(shape[1:])
    gain = _LOGIT_STD if "embed_tokens" in name or "lm_head" in name else 1.2
    return 0.0, gain / math.sqrt(fan_in)


def _special_ids(folder: Path) -> tuple[dict[str, int], int]:
    """Ids of the special tokens, and the size of the tokenizer's vocabulary."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return SPECIAL_IDS, 0
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    added = {token["content"]: int(token["id"]) for token in tokenizer["added_tokens"]}
    vocab = tokenizer["model"].get("vocab", {})
    highest = max([*added.values(), *(vocab.values() if isinstance(vocab, dict) else ())])
    return SPECIAL_IDS | added, highest + 1


def _generation_config(ids: dict[str, int]) -> dict[str, Any]:
    return {
        "bos_token_id": ids["<|endoftext|>"],
        "do_sample": True,
        "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
        "pad_token_id": ids["<|endoftext|>"],
        "repetition_penalty": 1.0,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
    }


_PREPROCESSOR = {
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "image_std": [0.5, 0.5, 0.5],
    "merge_size": 2,
    "patch_size": 16,
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "temporal_patch_size": 2,
}


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2), encoding="utf-8")


if __name__ == "__main__":  # for `make soak`
    from tests.tiny import write_tokenizer

    for name in sys.argv[1:]:
        write_tokenizer(Path(name))
        write_checkpoint(Path(name))
