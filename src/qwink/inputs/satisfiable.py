"""Whether some finite JSON has a schema. An object that must contain another like it never ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwink.errors import ShapeError


def check_ends(schema: Mapping[str, Any]) -> None:
    """Raises ShapeError if each value must contain another of the same kind, without end.

    What it does not know it takes for satisfiable. llguidance finds other contradictions.
    """
    if "$ref" not in str(schema):
        return
    ends: dict[str, bool] = {}
    references = _references(schema)
    while True:  # to the least fixed point: a reference ends if its target does with those so far
        before = len(ends)
        for reference in references:
            if reference not in ends:
                target = _target(schema, reference)
                if target is None or _ends(target, ends):
                    ends[reference] = True
        if len(ends) == before:
            break
    if not _ends(schema, ends):
        message = "no answer ends: each value must contain another; make a property optional"
        raise ShapeError("schema", message)


def _ends(schema: Any, ends: Mapping[str, bool]) -> bool:
    """Whether a value of the schema can end, given the references that do."""
    if not isinstance(schema, Mapping):
        return True
    reference = schema.get("$ref")
    if isinstance(reference, str) and not ends.get(reference):
        return False
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        if (
            isinstance(branches, list)
            and branches
            and not any(_ends(one, ends) for one in branches)
        ):
            return False
    every = schema.get("allOf")
    if isinstance(every, list) and not all(_ends(one, ends) for one in every):
        return False
    kinds = schema.get("type")
    if "const" in schema or "enum" in schema:
        return True
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list):
        return True  # also a number or a text may do
    return any(_kind_ends(kind, schema, ends) for kind in kinds) or not kinds


def _kind_ends(kind: Any, schema: Mapping[str, Any], ends: Mapping[str, bool]) -> bool:
    if kind == "object":
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            return True
        return all(_ends(properties.get(name), ends) for name in required if isinstance(name, str))
    if kind == "array":
        least = schema.get("minItems")
        prefix = schema.get("prefixItems")
        if not isinstance(least, int) or least < 1:
            return True
        items = [*(prefix if isinstance(prefix, list) else [])[:least]]
        if len(items) < least:
            items.append(schema.get("items"))
        return all(_ends(one, ends) for one in items)
    return True


def _references(schema: Any) -> set[str]:
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if isinstance(value.get("$ref"), str):
                found.add(value["$ref"])
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _target(schema: Any, reference: str) -> Any:
    """What a reference within the schema points to; None for any other."""
    if not reference.startswith("#"):
        return None
    value = schema
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
