"""Model references: names, folders, hub ids; export on first use."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qwink.errors import ArtifactError, CheckpointError, ModelNotFound, OptionError
from qwink.export.identity import Progress
from qwink.export.recipe import RECIPES
from qwink.export.target import choose_target
from qwink.model.artifact import MANIFEST, Artifact
from qwink.native import NATIVE_LAYOUT, Layout, capabilities
from qwink.runtime import models
from qwink.runtime.models import find_artifact, find_folder, load
from qwink.settings import Settings


@pytest.fixture
def checkpoint(tiny_checkpoint: tuple[Path, Any]) -> Path:
    return tiny_checkpoint[0]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """An empty home and hub cache."""
    return Settings(tmp_path / "home", tmp_path / "hub", recipe="fast", threads=1)


@pytest.fixture
def artifact(checkpoint: Path, settings: Settings) -> Artifact:
    """The tiny checkpoint's, exported into the cache on first use."""
    return find_artifact(checkpoint, None, settings)


def put_into_hub_cache(checkpoint: Path, hub: Path, revision: str = "abc123") -> None:
    """As Hugging Face's tools do: blobs, a snapshot of links to them, and a reference."""
    repository = hub / "models--Org--Tiny-VL"
    snapshot, blobs = repository / "snapshots" / revision, repository / "blobs"
    for folder in (snapshot, blobs, repository / "refs"):
        folder.mkdir(parents=True)
    for number, path in enumerate(sorted(checkpoint.iterdir())):
        shutil.copyfile(path, blobs / str(number))
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", str(number)))
    (repository / "refs" / "main").write_text(revision)


def test_checkpoint_is_exported_once(checkpoint: Path, settings: Settings) -> None:
    seen: list[Progress] = []
    with load(checkpoint, settings=settings, report=seen.append) as vlm:
        assert vlm.ask(None, "Hello", max_tokens=2).text
        name = vlm.name
    assert seen
    folders = list(settings.artifacts.iterdir())
    assert len(folders) == 1
    manifest = Artifact.load(folders[0]).manifest
    assert (manifest.recipe, manifest.name) == ("fast", name)
    seen.clear()
    again = find_artifact(str(checkpoint), None, settings, seen.append)
    assert again.folder == folders[0]
    assert seen == []
    # Another recipe is another artifact, beside it.
    assert find_artifact(checkpoint, "small", settings).manifest.recipe == "small"
    assert len(list(settings.artifacts.iterdir())) == 2


def test_artifact_folder(artifact: Artifact, settings: Settings) -> None:
    assert find_artifact(artifact.folder, None, settings) == artifact
    assert find_artifact(str(artifact.folder), "fast", settings) == artifact
    with pytest.raises(OptionError, match="artifact of recipe 'fast', not 'exact'"):
        find_artifact(artifact.folder, "exact", settings)


def test_hub_id(checkpoint: Path, artifact: Artifact, settings: Settings) -> None:
    put_into_hub_cache(checkpoint, settings.hub_cache)
    found = find_folder("Org/Tiny-VL", settings)
    assert found == settings.hub_cache / "models--Org--Tiny-VL" / "snapshots" / "abc123"
    assert find_artifact("Org/Tiny-VL", None, settings).manifest.id == artifact.manifest.id
    exported = find_artifact("Org/Tiny-VL", "exact", settings)
    assert not any(path.is_symlink() for path in exported.folder.iterdir())
    exported.check()


def test_nano(settings: Settings) -> None:
    folder = find_folder("nano", settings)
    assert folder.parts[-3:] == ("qwink", "assets", "nano")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("Org/Absent", "Org/Absent is not on this machine; download"),
        ("absent", "no model 'absent'; give 'nano', a folder"),
        ("a/b/c", "no model 'a/b/c'"),
        ("../x y", "no model"),
    ],
)
def test_unknown_models(settings: Settings, model: str, words: str) -> None:
    with pytest.raises(ModelNotFound, match=words):
        load(model, settings=settings)


def test_half_downloaded_hub_model(checkpoint: Path, settings: Settings) -> None:
    put_into_hub_cache(checkpoint, settings.hub_cache)
    repository = settings.hub_cache / "models--Org--Tiny-VL"
    shutil.rmtree(repository / "blobs")  # links that lead nowhere
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load("Org/Tiny-VL", settings=settings)
    shutil.rmtree(repository / "snapshots")
    with pytest.raises(ModelNotFound, match="not on this machine"):
        load("Org/Tiny-VL", settings=settings)


def test_file_and_empty_folder_are_no_models(checkpoint: Path, settings: Settings) -> None:
    with pytest.raises(ModelNotFound):
        load(checkpoint / "config.json", settings=settings)
    settings.home.mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load(settings.home, settings=settings)


def test_options_are_checked(artifact: Artifact, checkpoint: Path, settings: Settings) -> None:
    with pytest.raises(OptionError, match="threads is 0"):
        load(artifact.folder, threads=0, settings=settings)
    with pytest.raises(OptionError, match="no recipe 'best'; there are: exact, quality"):
        load(checkpoint, recipe="best", settings=settings)
    with pytest.raises(OptionError, match="context is 1;"):
        load(artifact.folder, context=1, settings=settings)


def test_context_and_threads_reach_the_model(artifact: Artifact, settings: Settings) -> None:
    with load(artifact.folder, context=64, threads=2, settings=settings) as vlm:
        assert vlm.context == 64
        assert vars(vlm.engine)["threads"] == 2


def test_settings_name_the_model(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setenv("QWINK_MODEL", str(artifact.folder))
    monkeypatch.setenv("QWINK_HOME", str(settings.home))
    monkeypatch.setenv("QWINK_THREADS", "1")
    with load() as vlm:
        assert vlm.engine.artifact_id == artifact.manifest.id


def test_artifacts_in_the_cache_are_made_anew_when_the_layout_changes(
    artifact: Artifact, checkpoint: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kernels were compiled, or with a newer version of qwink."""
    other: Layout = "onnxruntime" if artifact.manifest.layout == NATIVE_LAYOUT else NATIVE_LAYOUT
    target = replace(choose_target(RECIPES["fast"]), layout=other)
    here = replace(capabilities(), layouts=(other,), int8_limit=target.int8_limit)
    monkeypatch.setattr("qwink.export.target.capabilities", lambda: here)
    again = find_artifact(checkpoint, None, settings)
    assert again.folder != artifact.folder
    assert again.manifest.layout == other
    monkeypatch.setattr("qwink.export.identity.BUILDER_VERSION", 0)
    assert find_artifact(checkpoint, None, settings).folder not in (again.folder, artifact.folder)


def test_an_old_artifact_in_a_folder_of_the_users_is_refused(
    artifact: Artifact, settings: Settings, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(artifact.folder, tmp_path / "mine"))
    values = json.loads((folder / MANIFEST).read_text())
    del values["layout"]
    old = values | {"format_version": 1, "kernels": "onnxruntime"}
    (folder / MANIFEST).write_text(json.dumps(old))
    with pytest.raises(ArtifactError, match="format version 1, this qwink reads 3; export"):
        load(folder, settings=settings)


@pytest.mark.parametrize("damage", ["cut", "missing", "format", "foreign", "no manifest"])
def test_damaged_artifact_in_the_cache_is_made_anew(
    artifact: Artifact, checkpoint: Path, settings: Settings, damage: str
) -> None:
    folder = artifact.folder
    manifest = folder / MANIFEST
    if damage == "cut":
        (folder / "head.bin").write_bytes(b"")
    elif damage == "missing":
        (folder / "vision.onnx").unlink()
    elif damage == "format":
        values = json.loads(manifest.read_text())
        manifest.write_text(json.dumps(values | {"format_version": 0}))
    elif damage == "foreign":
        manifest.write_text("{}")
    else:
        manifest.unlink()
    seen: list[Progress] = []
    again = find_artifact(checkpoint, None, settings, seen.append)
    assert seen
    assert again.manifest == artifact.manifest
    again.check()
    assert [path.name for path in settings.artifacts.iterdir()] == [folder.name]


def test_damaged_artifact_elsewhere_is_left_alone(artifact: Artifact, settings: Settings) -> None:
    (artifact.folder / "head.bin").unlink()
    with pytest.raises(ArtifactError, match=r"head\.bin: missing"):
        load(artifact.folder, settings=settings)


def test_failed_export_leaves_no_artifact(
    checkpoint: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(progress: Progress) -> None:
        if progress.part == "head":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.find_artifact(checkpoint, None, settings, stop)
    assert list(settings.artifacts.iterdir()) == []
