"""The shape of an answer in a request's JSON: OpenAI's fields, vLLM's, and vLLM's older ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from qwink.errors import OptionError, ShapeError
from qwink.inputs.shape import (
    choices_shape,
    grammar_shape,
    json_object,
    regex_shape,
    schema_shape,
)
from qwink.server.failures import Failure
from qwink.types import Shape

# vLLM's names of what an answer may be restricted to; `guided_` before them is older.
_MAKERS: Mapping[str, Callable[[Any], Shape]] = {
    "json": schema_shape,
    "choice": choices_shape,
    "regex": regex_shape,
    "grammar": grammar_shape,
}
_FORMAT = 'write {"type": "json_schema", "json_schema": {"name": "...", "schema": {...}}}'
_RESTRICTION = "give one of json, json_object, choice, regex and grammar"
# Further fields of vLLM's, and whether a value asks for nothing that is not done anyway.
_OTHERS: Mapping[str, Callable[[Any], bool]] = {
    "disable_any_whitespace": lambda value: isinstance(value, bool),
    "disable_fallback": lambda value: isinstance(value, bool),
    "disable_additional_properties": lambda value: value is False,
    "whitespace_pattern": lambda value: False,
    "structural_tag": lambda value: False,
}

# A shape, and the field of the request that asks for it.
Placed = tuple[Shape, str]


def shape_of_chat(
    response_format: Any, structured_outputs: Any, guided: Mapping[str, Any]
) -> Placed | None:
    """What a chat request asks for; None: nothing. `guided`: values of its fields guided_json etc.

    Raises Failure, naming the field.
    """
    found = [
        response_shape(response_format, "response_format", nested="json_schema"),
        _restricted(structured_outputs),
        *(_made(name, value, f"guided_{name}") for name, value in guided.items()),
    ]
    given = [placed for placed in found if placed is not None]
    if len(given) > 1:
        first, second = given[0][1].partition(".")[0], given[1][1].partition(".")[0]
        raise _wrong(second, f"{first} gives the answer's shape already; give one of them")
    return _usable(given[0]) if given else None


def response_shape(value: Any, place: str, nested: str | None = None) -> Placed | None:
    """The shape of OpenAI's `response_format`, or of `text.format`.

    `nested`: the field of it that holds the schema and what belongs to it, if one does.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _wrong(place, f"it must be an object: {_FORMAT}")
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return _usable((json_object(), place))
    if kind != "json_schema":
        raise _wrong(f"{place}.type", 'it must be "text", "json_object" or "json_schema"')
    if nested is not None:
        place = f"{place}.{nested}"
        value = value.get(nested)
        if not isinstance(value, dict):
            raise _wrong(place, f"it must be an object: {_FORMAT}")
    strict = value.get("strict")
    if not isinstance(strict, bool | None):
        raise _wrong(f"{place}.strict", "it must be true, false or null")
    schema = value.get("schema")
    if schema is None:
        raise _wrong(f"{place}.schema", "it is missing; give a JSON Schema")
    if not isinstance(schema, dict):
        raise _wrong(f"{place}.schema", 'it must be an object such as {"type": "object"}')
    with_place = f"{place}.schema"
    shape = _shape(lambda: schema_shape(schema, strict=bool(strict)), with_place)
    return _usable((shape, with_place))


def _usable(placed: Placed) -> Placed:
    """Raises Failure if a package that the shape needs is not installed."""
    if placed[0].kind != "choices" and find_spec("llguidance") is None:
        message = "this server cannot do it; its operator can install the extra structured of qwink"
        raise _wrong(placed[1], message)
    return placed


def _restricted(value: Any) -> Placed | None:
    """The shape of vLLM's `structured_outputs`."""
    place = "structured_outputs"
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _wrong(place, f"it must be an object; {_RESTRICTION}")
    asked = {name: one for name, one in value.items() if one is not None}
    for name, asks_nothing in _OTHERS.items():
        if name in asked and not asks_nothing(asked.pop(name)):
            raise _wrong(
                f"{place}.{name}", f"it is not supported; leave it out, and {_RESTRICTION}"
            )
    if asked.get("json_object") is False:
        del asked["json_object"]
    if len(asked) != 1:
        raise _wrong(place, _RESTRICTION)
    ((name, one),) = asked.items()
    if name == "json_object":
        if one is not True:
            raise _wrong(f"{place}.{name}", "it must be true, false or null")
        return json_object(), f"{place}.{name}"
    if name not in _MAKERS:
        raise _wrong(f"{place}.{name}", f"it is unknown; {_RESTRICTION}")
    return _made(name, one, f"{place}.{name}")


def _made(name: str, value: Any, place: str) -> Placed | None:
    if value is None:
        return None
    if name == "json" and not isinstance(value, dict | str):
        raise _wrong(place, 'it must be a schema such as {"type": "object"}')
    return _shape(lambda: _MAKERS[name](value), place), place


def _shape(make: Callable[[], Shape], place: str) -> Shape:
    try:
        return make()
    except ShapeError as error:
        raise failed_shape(error, place) from None


def failed_shape(error: OptionError, place: str) -> Failure:
    """The Failure for a shape that the request's field `place` asks for."""
    reason = error.reason if isinstance(error, ShapeError) else str(error)
    return _wrong(place, reason)


def _wrong(place: str, message: str) -> Failure:
    return Failure(400, f"{place}: {message}", "invalid_value", place)
