"""The id and the progress of an export. Needs none of the packages that an export needs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from qwink.export.recipe import Recipe
from qwink.export.target import Target
from qwink.model.artifact import FORMAT_VERSION

BUILDER_VERSION = 11  # raise it whenever the same checkpoint and recipe give other numbers


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is: parameters done, parameters in total, and the current part."""

    done: int
    total: int
    part: str


Report = Callable[[Progress], None]


def artifact_id(source_fingerprint: str, recipe: Recipe, target: Target) -> str:
    """A hash of everything that determines an artifact's numbers: 64 hex digits."""
    parts = (FORMAT_VERSION, BUILDER_VERSION, source_fingerprint, recipe, target)
    return hashlib.sha256(repr(parts).encode()).hexdigest()
