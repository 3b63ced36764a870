"""Loading artifacts: what is refused, and in which words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwink.errors import ArtifactError
from qwink.export.build import export
from qwink.export.recipe import RECIPES
from qwink.model.artifact import MANIFEST, Artifact, Manifest, is_artifact


@pytest.fixture(scope="module")
def written(
    tiny_checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory
) -> Artifact:
    out = tmp_path_factory.mktemp("artifact") / "fast"
    return export(tiny_checkpoint[0], out, RECIPES["fast"])


@pytest.fixture
def folder(written: Artifact, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(written.folder, tmp_path / "artifact"))


def change_manifest(folder: Path, **changes: Any) -> None:
    values = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(values | changes))


def test_manifest_survives_json(written: Artifact) -> None:
    assert Manifest.from_json(written.manifest.to_json()) == written.manifest
    assert Artifact.load(str(written.folder)) == written
    assert is_artifact(written.folder)
    assert written.graph("prefill") == written.folder / "prefill.onnx"


def test_tables_are_mapped_and_read_only(written: Artifact) -> None:
    table = written.table(written.manifest.embedding)
    assert isinstance(table, np.memmap)
    assert table.shape == (written.config.text.vocab_size, written.config.text.hidden_size)
    assert not table.flags.writeable


@pytest.mark.parametrize("name", ["vision.bin", "decode.onnx", "embedding.bin", "config.json"])
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ArtifactError, match=rf"{name}: missing; export the checkpoint again"):
        Artifact.load(folder)


@pytest.mark.parametrize("name", ["head.bin", "tokenizer.json"])
def test_cut_file(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1])
    words = rf"{name}: {len(content) - 1} bytes, not {len(content)}; export"
    with pytest.raises(ArtifactError, match=words):
        Artifact.load(folder)


def test_flipped_bit_is_found_by_check(folder: Path) -> None:
    artifact = Artifact.load(folder)
    artifact.check()
    content = bytearray((folder / "prefill.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "prefill.bin").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"prefill\.bin: damaged; export"):
        Artifact.load(folder).check()


def test_file_that_vanishes_before_the_check(folder: Path) -> None:
    artifact = Artifact.load(folder)
    (folder / "head.bin").unlink()
    with pytest.raises(ArtifactError, match=r"head\.bin: No such file"):
        artifact.check()


@pytest.mark.parametrize("version", [0, 1, 2, 4, "3"])
def test_other_format_version(folder: Path, version: object) -> None:
    change_manifest(folder, format_version=version)
    with pytest.raises(ArtifactError, match=f"format version {version}, this qwink reads 3"):
        Artifact.load(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '{"name": "My web app", "icons": []}',
        '{"format_version": 3}',
        '{"format_version": 3, "embedding": {}, "positions": [], "files": {}}',
        "\ud800",
    ],
)
def test_foreign_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ArtifactError, match=r"manifest\.json: damaged; export"):
        Artifact.load(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"surprise": 1},
        {"layout": "tiles32"},
        {"layout": []},
        {"files": []},
        {"files": {"vision.bin": {"num_bytes": 3}}},
        {"embedding": {"file": "embedding.bin"}},
        {"graphs": {"vision": "vision.onnx"}},
        {"graphs": []},
    ],
    ids=str,
)
def test_damaged_manifest(folder: Path, changes: dict[str, Any]) -> None:
    change_manifest(folder, **changes)
    with pytest.raises(ArtifactError, match=r"manifest\.json: damaged; export"):
        Artifact.load(folder)


def test_no_artifact_at_all(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        assert not is_artifact(folder)
        with pytest.raises(ArtifactError, match="not an artifact, it has no manifest"):
            Artifact.load(folder)
