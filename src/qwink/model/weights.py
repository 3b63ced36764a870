"""Reads the tensors of a checkpoint from one or several safetensors files, by memory map."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qwink.errors import CheckpointError
from qwink.model.artifact import COPIED_FILES
from qwink.model.config import ModelConfig
from qwink.model.fields import Fields
from qwink.model.safetensors import Entry, SafetensorsFile

Dtype = Literal["BF16", "F16", "F32"]

# NumPy types for the stored values. NumPy has no bfloat16, so its bits are read as uint16.
_STORED: dict[Dtype, str] = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SAMPLE_BYTES = 16 * 1024


class Rows:
    """A matrix [N, K] in storage; slices of rows are converted to float32 when they are taken."""

    dtype = np.dtype(np.float32)

    def __init__(self, raw: NDArray[Any]) -> None:
        self._raw = raw
        self.shape: tuple[int, int] = (raw.shape[0], raw.shape[1])

    @property
    def nbytes(self) -> int:
        """Size as float32."""
        return 4 * self.shape[0] * self.shape[1]

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        return widen(self._raw[rows])


def widen(raw: NDArray[Any]) -> NDArray[np.float32]:
    """Stored values as a new float32 array, exactly; uint16 holds bfloat16."""
    values = np.empty(raw.shape, np.float32)
    if raw.dtype == np.uint16:
        # bfloat16 is the upper half of a float32. NumPy converts in small blocks, without a copy.
        np.left_shift(raw, 16, out=values.view(np.uint32), dtype=np.uint32)
    else:
        values[...] = raw
    return values


class Weights:
    """The tensors of a checkpoint folder, under the names of Qwen3-VL's published checkpoints.

    Use it as a context manager. Arrays from `read_raw` stay valid after closing.
    Raises CheckpointError: no weights, a missing shard, or a damaged file.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        paths, weight_map = _weight_files(self.folder)
        files = {path.name: SafetensorsFile(path) for path in paths}
        self._entries: dict[str, Entry] = {}
        for file in files.values():
            for name, entry in file.entries.items():
                published = _published_name(name)
                if published in self._entries:
                    raise CheckpointError(f"{file.path}: {name} is in the checkpoint twice")
                self._entries[published] = entry
        for name, file_name in weight_map.items():
            if name not in files[file_name].entries:
                raise CheckpointError(
                    f"{files[file_name].path}: {name} is missing; {_INDEX} says it is here"
                )

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the files. Arrays that were returned stay valid."""
        for entry in self._entries.values():
            entry.file.close()
        self._entries = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tensors, sorted."""
        return tuple(sorted(self._entries))

    @property
    def num_bytes(self) -> int:
        """Size of all tensors as stored."""
        return sum(entry.num_bytes for entry in self._entries.values())

    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape. Raises CheckpointError: no such tensor."""
        return self._entry(name).shape

    def dtype(self, name: str) -> Dtype:
        """The stored type. Raises CheckpointError: no such tensor, or an unsupported type."""
        entry = self._entry(name)
        for known in _STORED:
            if entry.dtype == known:
                return known
        raise CheckpointError(
            f"{entry.file.path}: {name} is stored as {entry.dtype}; quantised checkpoints are not "
            "supported, use one in BF16, F16 or F32"
        )

    def read_raw(self, name: str) -> tuple[NDArray[Any], Dtype]:
        """The stored values as a read-only map: uint16 for BF16, else float16 or float32."""
        entry, dtype = self._entry(name), self.dtype(name)
        data = entry.file.bytes[entry.start : entry.start + entry.num_bytes]
        return data.view(_STORED[dtype]).reshape(entry.shape), dtype

    def read(self, name: str) -> NDArray[np.float32]:
        """The tensor as a new float32 array. The conversion is exact for all three types."""
        raw, _ = self.read_raw(name)
        values = widen(raw)
        entry = self._entry(name)
        entry.file.forget(entry.start, entry.num_bytes)
        return values

    def rows(self, name: str) -> Rows:
        """A matrix whose rows are read when they are indexed."""
        return Rows(self.read_raw(name)[0])

    def check(self, config: ModelConfig) -> None:
        """Raises CheckpointError for a needed tensor that is missing, quantised or misshapen."""
        for name, shape in expected_tensors(config).items():
            if name not in self._entries:
                raise CheckpointError(f"{self.folder}: {name} {list(shape)} is missing")
            self.dtype(name)
            if (found := self.shape(name)) != shape:
                raise CheckpointError(
                    f"{self._entry(name).file.path}: {name} should have shape {list(shape)}, "
                    f"found {list(found)}"
                )

    def _entry(self, name: str) -> Entry:
        if (entry := self._entries.get(name)) is None:
            raise CheckpointError(f"{self.folder}: {name} is missing")
        return entry


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a checkpoint with this configuration must have."""
    vision, text = config.vision, config.text
    shapes: dict[str, tuple[int, ...]] = {}

    def affine(name: str, *shape: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, shape[:1]

    hidden, inner, patch = vision.hidden_size, vision.intermediate_size, vision.patch_size
    affine("model.visual.patch_embed.proj", hidden, vision.in_channels,
           vision.temporal_patch_size, patch, patch)  # fmt: skip
    shapes["model.visual.pos_embed.weight"] = (vision.num_position_embeddings, hidden)
    for layer in range(vision.depth):
        block = f"model.visual.blocks.{layer}"
        affine(f"{block}.norm1", hidden)
        affine(f"{block}.attn.qkv", 3 * hidden, hidden)
        affine(f"{block}.attn.proj", hidden, hidden)
        affine(f"{block}.norm2", hidden)
        affine(f"{block}.mlp.linear_fc1", inner, hidden)
        affine(f"{block}.mlp.linear_fc2", hidden, inner)
    merged = hidden * vision.merge_size**2
    mergers = {"model.visual.merger": hidden}
    # The DeepStack mergers normalise after merging; the final merger normalises before it.
    for index in range(len(vision.deepstack_layers)):
        mergers[f"model.visual.deepstack_merger_list.{index}"] = merged
    for merger, norm_size in mergers.items():
        affine(f"{merger}.norm", norm_size)
        affine(f"{merger}.linear_fc1", merged, merged)
        affine(f"{merger}.linear_fc2", vision.out_hidden_size, merged)

    hidden, inner, head = text.hidden_size, text.intermediate_size, text.head_dim
    query, key = text.num_heads * head, text.num_kv_heads * head
    shapes["model.language_model.embed_tokens.weight"] = (text.vocab_size, hidden)
    for layer in range(text.num_layers):
        block = f"model.language_model.layers.{layer}"
        shapes[f"{block}.input_layernorm.weight"] = (hidden,)
        for name, rows, columns in (
            ("q_proj", query, hidden),
            ("k_proj", key, hidden),
            ("v_proj", key, hidden),
            ("o_proj", hidden, query),
        ):
            shapes[f"{block}.self_attn.{name}.weight"] = (rows, columns)
            if text.attention_bias:
                shapes[f"{block}.self_attn.{name}.bias"] = (rows,)
        shapes[f"{block}.self_attn.q_norm.weight"] = (head,)
        shapes[f"{block}.self_attn.k_norm.weight"] = (head,)
        shapes[f"{block}.post_attention_layernorm.weight"] = (hidden,)
        shapes[f"{block}.mlp.gate_proj.weight"] = (inner, hidden)
        shapes[f"{block}.mlp.up_proj.weight"] = (inner, hidden)
        shapes[f"{block}.mlp.down_proj.weight"] = (hidden, inner)
    shapes["model.language_model.norm.weight"] = (hidden,)
    if not text.tie_word_embeddings:
        shapes["lm_head.weight"] = (text.vocab_size, hidden)
    return shapes


def fingerprint(folder: Path | str) -> str:
    """A stable id of a checkpoint, 64 hex digits, which does not read all of the weights.

    SHA-256 over config.json and the other small files (preprocessor, tokenizer, chat template,
    generation defaults), and over the name, size and header of each weight file and the first
    16 KiB of every tensor. A change further inside a tensor is not detected; retraining and
    merging change tensors throughout. Raises CheckpointError as Weights does.
    """
    folder = Path(folder)
    digest = hashlib.sha256()

    def add(data: bytes) -> None:
        digest.update(len(data).to_bytes(8, "little") + data)  # the length separates the parts

    Fields.read(folder / "config.json")
    for name in COPIED_FILES:
        if (folder / name).is_file():
            add(name.encode())
            add((folder / name).read_bytes())
    for path in sorted(_weight_files(folder)[0]):
        file = SafetensorsFile(path)
        add(path.name.encode())
        add(str(file.bytes.size).encode())
        add(file.header_bytes)
        for entry in sorted(file.entries.values(), key=lambda entry: entry.start):
            end = entry.start + min(entry.num_bytes, _SAMPLE_BYTES)
            add(file.bytes[entry.start : end].tobytes())
        file.close()
    return digest.hexdigest()


def _weight_files(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The weight files, and the index: tensor name to file name (empty without an index)."""
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE], {}
    if not (folder / _INDEX).is_file():
        shards = sorted(path.name for path in folder.glob("*.safetensors"))
        hint = f"; {shards[0]} is here but {_INDEX} is not" if shards else ""
        raise CheckpointError(f"{folder}: expected {_SINGLE} or {_INDEX}{hint}")
    index = Fields.read(folder / _INDEX)
    weight_map = index.section("weight_map").values
    for name in weight_map.values():
        # The index is a downloaded file: its names must not lead out of the folder.
        if not isinstance(name, str) or not name or Path(name).name != name or "\\" in name:
            raise index.error(f"weight_map names {name!r}; expected a file name")
    paths = [folder / name for name in sorted(set(weight_map.values()))]
    for path in paths:
        if not path.is_file():
            raise CheckpointError(f"{path}: missing; {_INDEX} lists {len(paths)} shards")
    return paths, weight_map


def _published_name(name: str) -> str:
    """The published name of a tensor, for a name in the published or the older spelling."""
    if name.startswith("visual."):
        return f"model.{name}"
    if name.startswith(("model.layers.", "model.embed_tokens.", "model.norm.")):
        return name.replace("model.", "model.language_model.", 1)
    return name
