"""The tokenizer and chat template: bytes as tokens, and Qwen's special tokens."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
IDS = {name: 256 + index for index, name in enumerate(SPECIALS)}
END, START, STOP = IDS["<|endoftext|>"], IDS["<|im_start|>"], IDS["<|im_end|>"]
IMAGE, VIDEO = IDS["<|image_pad|>"], IDS["<|video_pad|>"]
VISION_START, VISION_END = IDS["<|vision_start|>"], IDS["<|vision_end|>"]


def encode(text: str) -> list[int]:
    """Ids of plain text without special tokens: its UTF-8 bytes."""
    return list(text.encode())


def decode(ids: Sequence[int]) -> str:
    """Plain text of ids; special tokens are dropped."""
    return bytes(i for i in ids if i < 256).decode(errors="replace")
