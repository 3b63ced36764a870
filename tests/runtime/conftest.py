"""A loaded model for the tests of the runtime: tiny, random, in fp32, and greedy by default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from qwink.engine.base import Engine
from qwink.engine.onnx import OnnxEngine
from qwink.export.build import export
from qwink.export.recipe import RECIPES
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.tokenizer import Tokenizer
from qwink.model.artifact import Artifact
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.types import SamplingParams


@pytest.fixture(scope="session")
def exact_artifact(
    tiny_checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory
) -> Artifact:
    out = tmp_path_factory.mktemp("exact") / "artifact"
    return export(tiny_checkpoint[0], out, RECIPES["exact"])


@pytest.fixture(scope="session", params=["onnx", "torch"])
def tiny_model(request: pytest.FixtureRequest, tiny_checkpoint: tuple[Path, Any]) -> Model:
    """Run by each engine in turn; torch's takes several images and prompts at once."""
    engine: Engine
    if request.param == "onnx":
        engine = OnnxEngine(request.getfixturevalue("exact_artifact"), 1)
    else:
        from tests.runtime.batching import Batching

        engine = Batching(tiny_checkpoint[0], "cpu", threads=1)
    folder = tiny_checkpoint[0]
    return Model(
        "tiny",
        engine,
        Tokenizer.load(folder),
        ChatTemplate.load(folder),
        SamplingParams(max_tokens=12),
    )


@pytest.fixture
def vlm(tiny_model: Model) -> Iterator[VLM]:
    """With empty caches; the engine is shared."""
    with VLM(tiny_model) as vlm:
        yield vlm


def _draw(seed: int, size: tuple[int, int] = (64, 64)) -> PIL.Image.Image:
    """A picture of noise in blocks, so that resizing leaves something of it."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (8, 8, 3), np.uint8)
    return PIL.Image.fromarray(blocks).resize(size, PIL.Image.Resampling.NEAREST)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three small pictures, one of them wide."""
    folder = tmp_path_factory.mktemp("drawn")
    paths = []
    for seed, size in enumerate([(64, 64), (128, 64), (64, 64)]):
        paths.append(folder / f"{seed}.png")
        _draw(seed, size).save(paths[-1])
    return paths
