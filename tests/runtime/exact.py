"""A model of random weights whose rows do not change each other's results."""

from __future__ import annotations

from pathlib import Path

from qwink.engine.onnx import OnnxEngine
from qwink.export.build import export
from qwink.export.recipe import RECIPES
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.requests import Model
from qwink.types import SamplingParams


def exact_model(checkpoint: Path, out: Path) -> Model:
    """Computed by our kernels. Its greedy answers go round in circles."""
    artifact = export(checkpoint, out, RECIPES["balanced"])
    return Model(
        "tiny",
        OnnxEngine(artifact, 1),
        Tokenizer.load(checkpoint),
        ChatTemplate.load(checkpoint),
        SamplingParams(max_tokens=40),
    )
