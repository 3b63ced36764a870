"""Convert a training checkpoint to a Hugging Face folder in Qwen3-VL's published format."""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from . import tokenizer as tk
from .model import Nano, NanoConfig

SMALLEST, LARGEST = 4096, 50176  # pixels: the areas nano was trained on
TEMPLATE = Path(__file__).with_name("chat_template.jinja")


def config(nano: NanoConfig) -> dict[str, Any]:
    """The contents of config.json."""
    text = {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": tk.END,
        "dtype": "bfloat16",
        "eos_token_id": tk.STOP,
        "head_dim": nano.head_dim,
        "hidden_act": "silu",
        "hidden_size": nano.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": nano.intermediate_size,
        "max_position_embeddings": 2048,
        "model_type": "qwen3_vl_text",
        "num_attention_heads": nano.heads,
        "num_hidden_layers": nano.layers,
        "num_key_value_heads": nano.kv_heads,
        "rms_norm_eps": 1e-06,
        "rope_scaling": {
            "mrope_interleaved": True,
            "mrope_section": list(nano.mrope_section),
            "rope_type": "default",
        },
        "rope_theta": nano.rope_theta,
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": nano.vocab_size,
    }
    vision = {
        "deepstack_visual_indexes": list(nano.deepstack),
        "depth": nano.vision_depth,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": nano.vision_hidden,
        "in_channels": 3,
        "initializer_range": 0.02,
        "intermediate_size": nano.vision_intermediate,
        "model_type": "qwen3_vl",
        "num_heads": nano.vision_heads,
        "num_position_embeddings": nano.position_embeddings,
        "out_hidden_size": nano.hidden_size,
        "patch_size": nano.patch,
        "spatial_merge_size": nano.merge,
        "temporal_patch_size": 2,
    }
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "dtype": "bfloat16",
        "image_token_id": tk.IMAGE,
        "model_type": "qwen3_vl",
        "text_config": text,
        "tie_word_embeddings": True,
        "video_token_id": tk.VIDEO,
        "vision_config": vision,
        "vision_end_token_id": tk.VISION_END,
        "vision_start_token_id": tk.VISION_START,
    }


def preprocessor(nano: NanoConfig, kind: str) -> dict[str, Any]:
    """The contents of preprocessor_config.json or video_preprocessor_config.json."""
    return {
        # Despite their names, these are areas in pixels.
        "size": {"longest_edge": LARGEST, "shortest_edge": SMALLEST},
        "patch_size": nano.patch,
        "temporal_patch_size": 2,
        "merge_size": nano.merge,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "Qwen3VLProcessor",
        **{
            "image": {"image_processor_type": "Qwen2VLImageProcessorFast"},
            "video": {"video_processor_type": "Qwen3VLVideoProcessor"},
        }[kind],
    }


def tokenizer_config() -> dict[str, Any]:
    """The contents of tokenizer_config.json."""
    entry = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(index): {"content": name, **entry, "special": True}
            for name, index in tk.IDS.items()
        },
        "additional_special_tokens": list(tk.SPECIALS[1:]),
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 2048,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


GENERATION = {
    "bos_token_id": tk.END,
    "do_sample": False,
    "eos_token_id": [tk.STOP, tk.END],
    "max_new_tokens": 64,
    "pad_token_id": tk.END,
}


def write(nano: Nano, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the folder under a temporary name, then rename it to `folder`."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    weights = {k: v.detach().to("cpu", dtype).contiguous() for k, v in nano.state_dict().items()}
    save_file(weights, part / "model.safetensors", metadata={"format": "pt"})
    (part / "model.safetensors").chmod(0o644)
    tk.build().save(str(part / "tokenizer.json"))
    shutil.copyfile(TEMPLATE, part / "chat_template.jinja")
    files = {
        "config.json": config(nano.config),
        "generation_config.json": GENERATION,
        "preprocessor_config.json": preprocessor(nano.config, "image"),
        "tokenizer_config.json": tokenizer_config(),
        "video_preprocessor_config.json": preprocessor(nano.config, "video"),
    }
    for name, content in files.items():
        (part / name).write_text(json.dumps(content, indent=2) + "\n")
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    part.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def load(checkpoint: Path) -> Nano:
    """The model from a training checkpoint."""
    nano = Nano(NanoConfig())
    nano.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True)["nano"])
    return nano.eval()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="last.pt of the training run")
    parser.add_argument("folder", type=Path, help="where the Hugging Face folder goes")
    args = parser.parse_args()
    write(load(args.checkpoint), args.folder)


if __name__ == "__main__":
    main()
