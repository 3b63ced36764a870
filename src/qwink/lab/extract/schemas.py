"""JSON Schemas of the layouts, inferred from their records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from qwink.lab.extract.records import MAKERS

_NUM_SAMPLES = 24


def schema_of(layout: str) -> dict[str, Any]:
    """The schema that all records of a layout meet."""
    make = MAKERS[layout]
    return infer([make(random.Random(f"{layout} {number}")) for number in range(_NUM_SAMPLES)])


def infer(values: Sequence[Any]) -> dict[str, Any]:
    """A schema that all `values` meet. Fields are required, and stand in their order."""
    kinds = {_kind(value) for value in values}
    if kinds == {"object"}:
        names = list(dict.fromkeys(name for value in values for name in value))
        fields = {name: infer([value[name] for value in values if name in value]) for name in names}
        return {
            "type": "object",
            "properties": fields,
            "required": names,
            "additionalProperties": False,
        }
    if kinds == {"array"}:
        items = [item for value in values for item in value]
        return {"type": "array", "items": infer(items)} if items else {"type": "array"}
    if "number" in kinds:
        kinds.discard("integer")
    return {"type": next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)}


def _kind(value: Any) -> str:
    for kind, types in (
        ("null", type(None)),
        ("boolean", bool),
        ("integer", int),
        ("number", float),
        ("string", str),
        ("array", list | tuple),
    ):
        if isinstance(value, types):
            return kind
    return "object"
