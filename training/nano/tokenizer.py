"""The tokenizer: byte tokens, merges for the words of questions, Qwen's special tokens."""

import json
from collections.abc import Sequence
from functools import lru_cache

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from .questions import asked

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
MERGES = 140
FIRST = 256 + MERGES
IDS = {name: FIRST + index for index, name in enumerate(SPECIALS)}
END, START, STOP = IDS["<|endoftext|>"], IDS["<|im_start|>"], IDS["<|im_end|>"]
IMAGE, VIDEO = IDS["<|image_pad|>"], IDS["<|video_pad|>"]
VISION_START, VISION_END = IDS["<|vision_start|>"], IDS["<|vision_end|>"]
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def alphabet() -> list[str]:
    """The printable character that stands for each byte, as in GPT-2."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte if byte in shown else 256 + hidden.index(byte)) for byte in range(256)]


def assemble(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    """A tokenizer with Qwen's normaliser, splitting and byte-level decoding."""
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@lru_cache(maxsize=1)
def build() -> Tokenizer:
    """The tokenizer. The id of a byte token is the byte's value, so answers can be UTF-8 bytes."""
    letters = alphabet()
    plain = {letter: byte for byte, letter in enumerate(letters)}
    learner = assemble(plain, [])
    trainer = trainers.BpeTrainer(
        vocab_size=FIRST, min_frequency=1, initial_alphabet=letters, show_progress=False
    )
    learner.train_from_iterator(asked(), trainer)
    pairs = [(a, b) for a, b in json.loads(learner.to_str())["model"]["merges"]]
    vocabulary = plain | {a + b: 256 + index for index, (a, b) in enumerate(pairs)}
    tokenizer = assemble(vocabulary, pairs)
    tokenizer.add_special_tokens([
        AddedToken(name, special=True, normalized=False) for name in SPECIALS
    ])  # fmt: skip
    return tokenizer


@lru_cache(maxsize=4096)
def encode(text: str) -> tuple[int, ...]:
    """Ids of a text. Names of special tokens in it become special tokens."""
    return tuple(build().encode(text, add_special_tokens=False).ids)


def encode_bytes(text: str) -> list[int]:
    """Ids of an answer: its UTF-8 bytes."""
    return list(text.encode())


def decode(ids: Sequence[int]) -> str:
    """The text of ids, without special tokens."""
    return build().decode(list(ids), skip_special_tokens=True)
