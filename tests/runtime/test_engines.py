"""Which engine is chosen, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from qwink.errors import OptionError
from qwink.runtime import engines
from qwink.runtime.engines import EngineOptions, choose_engine, describe_engines
from qwink.runtime.models import load
from qwink.settings import Settings
from tests.conftest import RunQwink


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "has_nvidia_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == "torch" else name)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """What is taken for one."""
    (tmp_path / "manifest.json").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "onnx"),
        ({"engine": "onnx"}, "onnx"),
        ({"engine": "torch"}, "torch"),
        ({"engine": "onnx", "device": "cpu"}, "onnx"),
        ({"engine": "torch", "device": "cpu"}, "torch"),
        ({"device": "cpu"}, "onnx"),
        ({"device": "cuda"}, "torch"),
        ({"device": "cuda:1", "dtype": "float16"}, "torch"),
        ({"dtype": "float32"}, "torch"),
        ({"quantize": "int8"}, "torch"),
        ({"recipe": "fast"}, "onnx"),
    ],
)
def test_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], expected: str
) -> None:
    monkeypatch.setattr(engines, "has_nvidia_gpu", lambda: False)
    assert choose_engine(EngineOptions(**options), tmp_path) == expected


@pytest.mark.usefixtures("gpu")
def test_with_a_gpu(tmp_path: Path) -> None:
    assert choose_engine(EngineOptions(), tmp_path) == "torch"
    assert choose_engine(EngineOptions(device="cpu"), tmp_path) == "onnx"
    assert choose_engine(EngineOptions(recipe="fast"), tmp_path) == "onnx"
    assert choose_engine(EngineOptions(), tmp_path, prefer_onnx=True) == "onnx"
    assert choose_engine(EngineOptions(device="cuda"), tmp_path, prefer_onnx=True) == "torch"


@pytest.mark.usefixtures("gpu")
def test_an_artifact_is_for_onnx(artifact: Path) -> None:
    assert choose_engine(EngineOptions(), artifact) == "onnx"
    with pytest.raises(OptionError, match="is an artifact, for onnx"):
        choose_engine(EngineOptions(engine="torch"), artifact)


def test_a_gpu_that_this_pytorch_cannot_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "has_nvidia_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_engine(EngineOptions(), tmp_path) == "onnx"


@pytest.mark.usefixtures("gpu", "no_torch")
def test_without_the_extra(tmp_path: Path) -> None:
    assert choose_engine(EngineOptions(), tmp_path) == "onnx"
    for options in (EngineOptions(engine="torch"), EngineOptions(device="cuda")):
        with pytest.raises(OptionError, match=r"needs torch; .* pip install .*\[torch\]"):
            choose_engine(options, tmp_path)
    assert "pip install" in describe_engines()["torch"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "tensorrt"}, "engine is 'tensorrt'; it must be auto, onnx, torch"),
        ({"engine": "onnx", "device": "cuda"}, "onnx runs on the CPU"),
        ({"engine": "onnx", "dtype": "float16"}, "choose a recipe"),
        ({"engine": "onnx", "quantize": "int8"}, "choose a recipe"),
        ({"engine": "torch", "recipe": "fast"}, "recipes are for onnx"),
        ({"device": "cuda", "recipe": "fast"}, "recipes are for onnx"),
        ({"dtype": "float16", "recipe": "fast"}, "recipes are for onnx"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        choose_engine(EngineOptions(**options), tmp_path)


def test_settings_are_defaults(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tmp_path, engine="torch", device="cpu", dtype="bfloat16")
    assert EngineOptions.resolve(settings, engine=None, dtype="float32", recipe=None) == (
        EngineOptions("torch", device="cpu", dtype="float32")
    )
    # Torch's defaults do not get in the way of whoever asks for onnx.
    assert EngineOptions.resolve(settings, engine="onnx") == EngineOptions("onnx")
    with pytest.raises(OptionError, match="threads is 0"):
        EngineOptions.resolve(settings, threads=0)


def test_both_engines_give_the_same_answer(
    tiny_checkpoint: tuple[Path, Any], tmp_path: Path, picture: Path
) -> None:
    settings = Settings(tmp_path, tmp_path, threads=1)
    answers = []
    ways: list[dict[str, Any]] = [{"engine": "torch"}, {"recipe": "exact"}]
    for how in ways:
        with load(tiny_checkpoint[0], settings=settings, **how) as vlm:
            result = vlm.ask(picture, "What is this?", max_tokens=16, temperature=0)
            answers.append(result.text)
            assert vlm.name == tiny_checkpoint[0].name
    assert answers[0] == answers[1]
    assert answers[0]


def test_the_command_line_with_torch(qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    # Nothing is exported: the checkpoint is run as it is.
    ran = qwink("ask", picture, "--engine", "torch", "--json", "--max-tokens", 2, home=tmp_path)
    assert ran.code == 0, ran.err
    assert '"engine": "torch"' in ran.out
    assert not (tmp_path / "artifacts").exists()
    refused = qwink("ask", picture, "--engine", "torch", "--recipe", "fast")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "qwink: recipe is fast, but recipes are for onnx; leave it out\n"
