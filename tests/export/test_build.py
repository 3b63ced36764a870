"""Whole exports: what an artifact holds, what it is called, and what is left when one fails."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import onnx
import pytest

from qwink.errors import ArtifactError, CheckpointError, OptionError
from qwink.export.build import export
from qwink.export.graph import WeightFile
from qwink.export.identity import Progress, artifact_id
from qwink.export.recipe import RECIPES
from qwink.export.target import Target, choose_target
from qwink.model.artifact import COPIED_FILES, MANIFEST, Artifact
from qwink.model.weights import Weights, fingerprint
from qwink.native import LAYOUTS, NATIVE_LAYOUT
from tests.checkpoints import write_checkpoint

EXACT, FAST = RECIPES["exact"], RECIPES["fast"]


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: tuple[Path, Any]) -> Path:
    return tiny_checkpoint[0]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_artifact_is_complete(checkpoint: Path, tmp_path: Path, recipe: Any) -> None:
    artifact = export(checkpoint, tmp_path / "out", recipe)
    folder, manifest = artifact.folder, artifact.manifest
    names = {path.name for path in folder.iterdir()}
    assert names == set(manifest.files) | {MANIFEST}
    for name, info in manifest.files.items():
        content = (folder / name).read_bytes()
        assert info.num_bytes == len(content)
        assert info.sha256 == hashlib.sha256(content).hexdigest()
    artifact.check()
    assert manifest.recipe == recipe.name
    assert manifest.id == artifact_id(fingerprint(checkpoint), recipe, choose_target(recipe))
    assert set(manifest.graphs) == {"vision", "prefill", "decode", "head"}
    assert len(set(manifest.graphs.values())) == (3 if recipe.shares_text_weights else 4)
    for file in set(manifest.graphs.values()):
        onnx.load(str(folder / file), load_external_data=False)
    for name in COPIED_FILES:
        assert ((folder / name).is_file()) == ((checkpoint / name).is_file())
    assert set(manifest.versions) == {"qwink", "onnx", "onnxruntime", "numpy"}
    assert folder.stat().st_mode & 0o777 == 0o755  # readable by others, unlike a temporary one
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_tables_are_the_checkpoints(checkpoint: Path, tmp_path: Path) -> None:
    artifact = export(checkpoint, tmp_path / "out", EXACT)
    with Weights(checkpoint) as weights:
        for info, name in (
            (artifact.manifest.embedding, "model.language_model.embed_tokens.weight"),
            (artifact.manifest.positions, "model.visual.pos_embed.weight"),
        ):
            table, (raw, dtype) = artifact.table(info), weights.read_raw(name)
            assert info.dtype == dtype
            assert table.dtype == raw.dtype
            assert (table == raw).all()


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_progress_rises_to_the_total(checkpoint: Path, tmp_path: Path, recipe: Any) -> None:
    seen: list[Progress] = []
    export(checkpoint, tmp_path / "out", recipe, seen.append)
    done = [progress.done for progress in seen]
    assert done == sorted(done)
    assert {progress.total for progress in seen} == {done[-1]}
    parts = list(dict.fromkeys(progress.part for progress in seen))
    middle = ["text"] if recipe.shares_text_weights else ["prefill", "decode"]
    assert parts == ["vision", *middle, "head", "done"]
    # What the reads add up to is nearly all of it: the bar does not jump at the end.
    with Weights(checkpoint) as weights:
        head = weights.shape("model.language_model.embed_tokens.weight")
    assert done[-2] > done[-1] - head[0] * head[1] - 10_000


def test_ids_tell_recipes_and_checkpoints_apart(checkpoint: Path, tmp_path: Path) -> None:
    folders = [checkpoint]
    for seed in (1, 2):
        folders.append(tmp_path / f"seed{seed}")
        write_checkpoint(folders[-1], seed=seed)
    targets = [*map(Target, LAYOUTS), Target("onnxruntime", 64)]
    parts = list(product(map(fingerprint, folders), RECIPES.values(), targets))
    ids = {artifact_id(*part) for part in parts}
    assert len(ids) == len(parts)
    assert all(len(name) == 64 for name in ids)
    copy = shutil.copytree(checkpoint, tmp_path / "elsewhere")
    first = export(checkpoint, tmp_path / "a", FAST).manifest
    again = export(copy, tmp_path / "b", FAST).manifest
    assert first.id == again.id
    assert first.files == again.files  # the same to the byte


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("preprocessor_config.json", {"image_mean": [0.4, 0.4, 0.4]}),
        ("generation_config.json", {"temperature": 0.1}),
        ("tokenizer_config.json", {"bos_token": "x"}),
    ],
)
def test_id_changes_whenever_an_answer_could(
    checkpoint: Path, tmp_path: Path, name: str, change: dict[str, Any]
) -> None:
    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    values = json.loads((copy / name).read_text())
    (copy / name).write_text(json.dumps(values | change))
    assert fingerprint(copy) != fingerprint(checkpoint)


def test_needs_no_torch(checkpoint: Path, tmp_path: Path) -> None:
    code = """
import sys
from qwink.export.build import export
from qwink.export.recipe import RECIPES
from qwink.engine.onnx import OnnxEngine
OnnxEngine(export(sys.argv[1], sys.argv[2], RECIPES["balanced"]), 1)
assert not {"torch", "transformers", "ml_dtypes.torch"} & set(sys.modules)
"""
    arguments = [sys.executable, "-W", "error", "-c", code, str(checkpoint), str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Failures


def assert_nothing_left(folder: Path, *kept: str) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(kept)


def test_full_disk(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = WeightFile.append
    calls = 0

    def fail_late(self: WeightFile, array: Any) -> tuple[int, int]:
        nonlocal calls
        calls += 1
        if calls > 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(self, array)

    monkeypatch.setattr(WeightFile, "append", fail_late)
    with pytest.raises(ArtifactError, match="the disk is full; free some space"):
        export(checkpoint, tmp_path / "out", EXACT)
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_exception_midway(checkpoint: Path, tmp_path: Path, error: type[BaseException]) -> None:
    old = export(checkpoint, tmp_path / "out", FAST).manifest

    def stop(progress: Progress) -> None:
        if progress.part == "text":
            raise error

    with pytest.raises(error):
        export(checkpoint, tmp_path / "out", EXACT, stop, overwrite=True)
    assert_nothing_left(tmp_path, "out")
    assert Artifact.load(tmp_path / "out").manifest == old  # the old one is untouched


def test_damaged_checkpoint_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(checkpoint, tmp_path / "copy"))
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match="truncated"):
        export(copy, tmp_path / "out", EXACT)
    assert_nothing_left(tmp_path, "copy")


def test_attention_bias_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "biased", attention_bias=True)
    with pytest.raises(CheckpointError, match="attention_bias is set"):
        export(tmp_path / "biased", tmp_path / "out", EXACT)
    assert_nothing_left(tmp_path, "biased")


def test_existing_folder_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):  # a folder that is no artifact is not replaced either way
        with pytest.raises(ArtifactError, match="already exists"):
            export(checkpoint, tmp_path / "mine", EXACT, overwrite=overwrite)
    export(checkpoint, tmp_path / "out", EXACT)
    with pytest.raises(ArtifactError, match="already exists"):
        export(checkpoint, tmp_path / "out", FAST)
    assert Artifact.load(tmp_path / "out").manifest.recipe == "exact"
    assert export(checkpoint, tmp_path / "out", FAST, overwrite=True).manifest.recipe == "fast"
    assert_nothing_left(tmp_path, "mine", "out")
    assert_nothing_left(tmp_path / "mine", "thesis.txt")


def test_place_that_cannot_be_written(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written"):
        export(checkpoint, tmp_path / "file" / "out", EXACT)


def test_parents_are_made(checkpoint: Path, tmp_path: Path) -> None:
    assert export(checkpoint, tmp_path / "a" / "b" / "out", EXACT).folder.is_dir()


def test_failing_rename_leaves_nothing(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ArtifactError, match="cannot be written: Permission denied"):
        export(checkpoint, tmp_path / "out", EXACT)
    assert_nothing_left(tmp_path)


def test_fp32_is_for_the_operators_of_onnxruntime(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"recipe exact is fp32.*use layout onnxruntime"):
        export(checkpoint, tmp_path / "out", EXACT, layout=NATIVE_LAYOUT)
    assert not list(tmp_path.iterdir())
    assert export(checkpoint, tmp_path / "out", EXACT).manifest.layout == "onnxruntime"


def graph_of(artifact: Artifact, part: str) -> onnx.ModelProto:
    return onnx.load(str(artifact.graph(part)), load_external_data=False)


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of branches too: the encoder's parts are branches."""
    for node in graph.node:
        yield node
        for each in node.attribute:
            if each.HasField("g"):
                yield from nodes_of(each.g)


@pytest.mark.parametrize("recipe", ["quality", "balanced", "small"])
def test_our_graphs_are_for_all_processors(checkpoint: Path, tmp_path: Path, recipe: str) -> None:
    """All attention is ours, over slots of a cache in half precision."""
    artifact = export(checkpoint, tmp_path / "out", RECIPES[recipe], layout=NATIVE_LAYOUT)
    assert artifact.manifest.layout == NATIVE_LAYOUT
    for part, attention, count in (
        ("vision", "ImageAttention", artifact.config.vision.depth),
        ("prefill", "TextAttention", artifact.config.text.num_layers),
        ("decode", "TextAttention", artifact.config.text.num_layers),
    ):
        graph = graph_of(artifact, part).graph
        nodes = list(nodes_of(graph))
        ours = [node for node in nodes if node.domain == "qwink"]
        operators = [node.op_type for node in nodes]
        assert operators.count(attention) == count
        assert not {"GroupQueryAttention", "MultiHeadAttention"} & set(operators)
        # Weights are copied to huge pages wherever few rows may read them: not for pictures.
        assert {attributes(node)["huge_pages"] for node in ours} == {int(part != "vision")}
        assert not any("tiles" in attributes(node) for node in ours)
        if part != "vision":
            kinds = {x.name: x.type.tensor_type for x in graph.input}
            places = {"rows": 1, "starts": 1, "lengths": 1, "slots": 1, "prompt": 0, "embeds": 2}
            ranks = {name: len(kinds[name].shape.dim) for name in places}
            assert ranks == places
            assert kinds["past_key_0"].elem_type == onnx.TensorProto.FLOAT16
            assert "total" not in kinds


def test_graphs_of_onnxruntime_use_its_operators_only(checkpoint: Path, tmp_path: Path) -> None:
    artifact = export(checkpoint, tmp_path / "out", FAST, layout="onnxruntime")
    for part in artifact.manifest.graphs:
        model = graph_of(artifact, part)
        assert "qwink" not in {each.domain for each in model.opset_import}
        assert not any(node.domain == "qwink" for node in model.graph.node)
