"""What an export is called and how far it is: known without the tools that make it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from qwink.export.recipe import Recipe
from qwink.model.artifact import FORMAT_VERSION

BUILDER_VERSION = 2  # raise it whenever the same checkpoint and recipe give other numbers


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is: parameters done of all, and the part under way."""

    done: int
    total: int
    part: str


Report = Callable[[Progress], None]


def artifact_id(source_fingerprint: str, recipe: Recipe) -> str:
    """Names all that determines an artifact's numbers; 64 hex digits."""
    parts = (FORMAT_VERSION, BUILDER_VERSION, source_fingerprint, recipe)
    return hashlib.sha256(repr(parts).encode()).hexdigest()
