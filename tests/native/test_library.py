"""Which kernels run here, and what is said where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwink import native
from qwink.engine.onnx import OnnxEngine
from qwink.errors import ArtifactError
from qwink.export.build import export
from qwink.export.recipe import RECIPES
from qwink.native import KERNELS, Kernels, best_kernels, runs


@pytest.fixture
def best(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what the processor runs."""

    def choose(kernels: Kernels) -> None:
        monkeypatch.setattr(native, "best_kernels", lambda: kernels)

    return choose


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_processor_runs_its_own_and_all_that_need_less(best: Any, kernels: Kernels) -> None:
    best(kernels)
    assert [runs(each) for each in KERNELS] == [
        KERNELS.index(each) >= KERNELS.index(kernels) for each in KERNELS
    ]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "none.so")
    assert best_kernels.__wrapped__() == "onnxruntime"


@pytest.mark.skipif(best_kernels() == "onnxruntime", reason="nothing to be refused here")
def test_an_artifact_for_another_processor_is_refused(
    tiny_checkpoint: tuple[Path, Any], tmp_path: Path, best: Any
) -> None:
    artifact = export(tiny_checkpoint[0], tmp_path / "out", RECIPES["fast"])
    assert artifact.manifest.kernels == best_kernels()
    best("onnxruntime")
    with pytest.raises(ArtifactError, match="export its checkpoint again on this machine"):
        OnnxEngine(artifact)
