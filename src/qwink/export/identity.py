"""What an export is called and how far it is: known without the tools that make it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from qwink.export.recipe import FP32, Recipe
from qwink.model.artifact import FORMAT_VERSION
from qwink.native import Kernels, best_kernels

BUILDER_VERSION = 8  # raise it whenever the same checkpoint and recipe give other numbers


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is: parameters done of all, and the part under way."""

    done: int
    total: int
    part: str


Report = Callable[[Progress], None]


def choose_kernels(recipe: Recipe) -> Kernels:
    """Our operators where they run here; they have nothing to offer to fp32."""
    return "onnxruntime" if recipe.vision == FP32 else best_kernels()


def artifact_id(source_fingerprint: str, recipe: Recipe, kernels: Kernels) -> str:
    """Names all that determines an artifact's numbers; 64 hex digits."""
    parts = (FORMAT_VERSION, BUILDER_VERSION, source_fingerprint, recipe, kernels)
    return hashlib.sha256(repr(parts).encode()).hexdigest()
