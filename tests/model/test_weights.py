"""Reading tensors that safetensors and transformers wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from qwink.errors import CheckpointError
from qwink.model.config import load_config
from qwink.model.weights import Weights, expected_tensors, fingerprint
from tests.checkpoints import write_checkpoint

NORM = "model.language_model.norm.weight"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that a test may change."""
    return Path(shutil.copytree(written, tmp_path / "model"))


def rewrite(folder: Path, change: dict[str, torch.Tensor | None]) -> None:
    with Weights(folder) as weights:
        tensors = {name: torch.from_numpy(weights.read(name)).bfloat16() for name in weights.names}
    tensors.update({name: tensor for name, tensor in change.items() if tensor is not None})
    kept = {name: tensor for name, tensor in tensors.items() if change.get(name, 0) is not None}
    save_file(kept, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({}, "BF16"),
        ({"shards": True, "tied": False}, "BF16"),
        ({"dtype": "float16"}, "F16"),
        ({"dtype": "float32", "attention_bias": True, "deepstack_layers": (1,)}, "F32"),
    ],
)
def test_reads_what_transformers_wrote(tmp_path: Path, options: dict[str, Any], dtype: str) -> None:
    reference = write_checkpoint(tmp_path, **options).state_dict()
    config = load_config(tmp_path)
    with Weights(tmp_path) as weights:
        weights.check(config)
        assert set(weights.names) == set(expected_tensors(config))
        for name in weights.names:
            values = weights.read(name)
            assert values.dtype == np.float32
            assert values.flags.writeable
            assert weights.dtype(name) == dtype
            assert weights.shape(name) == values.shape
            np.testing.assert_array_equal(values, reference[name].numpy())
        files = tmp_path.glob("*.safetensors")
        overhead = sum(path.stat().st_size for path in files) - weights.num_bytes
        assert 0 < overhead < 40_000


def test_raw_bits_are_mapped_and_outlive_closing(written: Path) -> None:
    weights = Weights(written)
    values = weights.read(NORM)
    raw, dtype = weights.read_raw(NORM)
    weights.close()
    assert dtype == "BF16"
    assert raw.dtype == np.uint16
    assert isinstance(raw, np.memmap)
    assert not raw.flags.writeable
    np.testing.assert_array_equal((raw.astype(np.uint32) << 16).view(np.float32), values)
    assert weights.names == ()


@given(bits=st.lists(st.integers(0, 0xFFFF), max_size=300))
def test_bfloat16_is_exact(bits: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bits")
    stored = torch.tensor(bits, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    save_file({"x": stored}, folder / "model.safetensors")
    read = Weights(folder).read("x")
    expected = stored.float().numpy()
    np.testing.assert_array_equal(read.view(np.uint32), expected.view(np.uint32))


def test_older_names(folder: Path) -> None:
    with Weights(folder) as weights:
        old = {
            name.replace("model.visual.", "visual.").replace(
                "language_model.", ""
            ): torch.from_numpy(weights.read(name))
            for name in weights.names
        }
        names = weights.names
    save_file(old, folder / "model.safetensors")
    with Weights(folder) as weights:
        assert weights.names == names
        weights.check(load_config(folder))


def test_unused_tensors_are_allowed(folder: Path) -> None:
    rewrite(folder, {"lm_head.weight": torch.zeros(2, 2)})
    with Weights(folder) as weights:
        weights.check(load_config(folder))


def test_check_names_a_missing_tensor(folder: Path) -> None:
    rewrite(folder, {NORM: None})
    with Weights(folder) as weights, pytest.raises(CheckpointError, match=NORM):
        weights.check(load_config(folder))
    with Weights(folder) as weights, pytest.raises(CheckpointError, match="is missing"):
        weights.read(NORM)


def test_check_names_both_shapes(folder: Path) -> None:
    rewrite(folder, {NORM: torch.zeros(7)})
    with (
        Weights(folder) as weights,
        pytest.raises(CheckpointError, match=rf"{NORM} should have shape \[96\], found \[7\]"),
    ):
        weights.check(load_config(folder))


@pytest.mark.parametrize(
    ("tensor", "name"),
    [
        (torch.zeros(96).to(torch.float8_e4m3fn), "F8_E4M3"),
        (torch.zeros(96, dtype=torch.int8), "I8"),
    ],
)
def test_check_refuses_quantised_weights(folder: Path, tensor: torch.Tensor, name: str) -> None:
    rewrite(folder, {NORM: tensor})
    with Weights(folder) as weights, pytest.raises(CheckpointError, match=f"stored as {name}"):
        weights.check(load_config(folder))


def header(values: Any) -> bytes:
    encoded = json.dumps(values).encode()
    return len(encoded).to_bytes(8, "little") + encoded


def tensor_header(**values: Any) -> bytes:
    return header({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **values}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git-LFS pointer"),
        (b"PK\x03\x04" + bytes(100), "not a safetensors file"),
        (b"<html>" + bytes(100), "not a safetensors file"),
        ((200).to_bytes(8, "little") + b"{}", "truncated"),
        (header([1]), "not a safetensors file"),
        ((2).to_bytes(8, "little") + b"{x", "damaged"),
        (tensor_header(), "truncated: it has .* bytes, its header says at least"),
        (tensor_header(shape=[3]) + bytes(8), "damaged"),
        (tensor_header(shape=[-1, -2]) + bytes(8), "damaged"),
        (tensor_header(data_offsets=[8, 0]) + bytes(8), "damaged"),
        (tensor_header(data_offsets=[-8, 0]) + bytes(8), "damaged"),
        (tensor_header(data_offsets=3) + bytes(8), "damaged"),
        (header({"x": {}}), "damaged"),
    ],
)
def test_refuses_a_damaged_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        Weights(tmp_path)
    assert str(path) in str(caught.value)


def test_refuses_a_truncated_download(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="truncated"):
        Weights(folder)


def test_refuses_a_folder_without_weights(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"expected model\.safetensors or"):
        Weights(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"00002\.safetensors is here but"):
        Weights(tmp_path)


def test_refuses_shards_that_do_not_fit_their_index(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=True)
    index_path = tmp_path / "model.safetensors.index.json"
    index = json.loads(index_path.read_text())
    shard = tmp_path / index["weight_map"][NORM]

    index["weight_map"]["ghost"] = shard.name
    index_path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="ghost is missing"):
        Weights(tmp_path)

    index["weight_map"]["ghost"] = "../ghost.safetensors"
    index_path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="expected a file name"):
        Weights(tmp_path)

    del index["weight_map"]["ghost"]
    index_path.write_text(json.dumps(index))
    shard.unlink()
    with pytest.raises(CheckpointError, match=f"{shard.name}: missing"):
        Weights(tmp_path)


def test_fingerprint(folder: Path, written: Path, tmp_path: Path) -> None:
    original = fingerprint(folder)
    assert original == fingerprint(written)
    assert len(original) == 64

    path = folder / "config.json"
    path.write_text(path.read_text() + " ")
    edited = fingerprint(folder)

    with Weights(folder) as weights:
        changed = torch.from_numpy(weights.read(NORM))
    changed[3] += 1
    rewrite(folder, {NORM: changed.bfloat16()})
    assert len({original, edited, fingerprint(folder)}) == 3
    with pytest.raises(CheckpointError, match="missing"):
        fingerprint(tmp_path)
