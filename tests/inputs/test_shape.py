"""Shapes as users write them: schemas, types, choices, patterns; what is too large or endless."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from qwink.errors import OptionError, ShapeError
from qwink.inputs.repetitions import expanded_length
from qwink.inputs.satisfiable import check_ends
from qwink.inputs.shape import json_object, shape_of
from qwink.types import Shape


class Item(BaseModel):
    name: str
    codes: set[int]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


@dataclass(frozen=True)
class Point:
    x: int
    kind: Literal["a", "b"] = "a"


def made(**options: Any) -> Shape:
    shape = shape_of(**options)
    assert shape is not None
    return shape


def test_nothing_asked() -> None:
    assert shape_of() is None


def test_schemas_keep_their_order() -> None:
    schema = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"}}}
    shape = made(schema=schema)
    assert list(json.loads(shape.source)["properties"]) == ["b", "a"]
    assert shape == made(schema=json.dumps(schema))
    assert hash(shape) == hash(made(schema=json.dumps(schema)))
    assert shape.read is not None
    assert shape.read('{"b":null}') == {"b": None}
    assert json_object().read is not None


def test_types() -> None:
    shape = made(schema=list[Item])
    (item,) = json.loads(shape.source)["$defs"].values()
    assert item["additionalProperties"] is False
    assert "uniqueItems" not in item["properties"]["codes"]  # a set is made of any list
    assert shape.read is not None
    assert shape.read('[{"name":"a","codes":[1,1]}]') == [Item(name="a", codes={1})]
    assert json.loads(made(schema=Open).source)["additionalProperties"] is True
    point = made(schema=Point)
    assert point.read is not None
    assert point.read('{"x":1,"kind":"b"}') == Point(1, "b")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schema": []}, "pydantic cannot make a schema"),
        ({"schema": "["}, "not JSON"),
        ({"schema": "[1]"}, "JSON object"),
        ({"schema": {"const": {1, 2}}}, "not JSON"),
        ({"schema": {"const": float("nan")}}, "not JSON"),
        ({"schema": {"const": "x" * 300_000}}, "256 KiB"),
        ({"schema": " " * 300_000}, "256 KiB"),
        ({"schema": {"enum": list(range(5000))}}, "5000 alternatives"),
        ({"schema": {"properties": {f"p{n}": {} for n in range(1001)}}}, "1001 properties"),
        ({"schema": {"type": "string", "pattern": "((a{99}){99}){99}"}}, "repetitions"),
        ({"regex": ""}, "not empty"),
        ({"regex": "((a{99}){99}){99}"}, "repetitions"),
        ({"regex": "\ud800"}, "surrogate"),
        ({"grammar": "x" * 300_000}, "256 KiB"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_not_valid(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeError, match=words) as caught:
        shape_of(**options)
    assert caught.value.option == next(iter(options))


def test_deep_schemas() -> None:
    schema: Any = {}
    for _ in range(70):
        schema = {"items": schema}
    with pytest.raises(ShapeError, match="nested more than 64"):
        shape_of(schema=schema)
    for _ in range(100_000):
        schema = {"items": schema}
    with pytest.raises(ShapeError, match="nested more than 64"):
        shape_of(schema=schema)
    with pytest.raises(ShapeError, match=r"not JSON|nested"):
        shape_of(schema='{"items":' * 20_000 + "{}" + "}" * 20_000)


def test_two_shapes() -> None:
    with pytest.raises(OptionError, match="schema and regex exclude each other"):
        shape_of(schema={}, regex="a")


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("abc", 3),
        (r"\d{4}-\d{2}", 7),
        ("(ab){10}c", 21),
        ("((a{10}){10}){10}", 1000),
        ("[a-z]{1,30}|x+", 33),
        (r"\({3}", 3),
        ("[({]{5}", 5),
        ("a{,7}", 7),
        ("a{x}", 4),
        (")a{3}(", 4),
    ],
)
def test_expanded_length(pattern: str, length: int) -> None:
    assert expanded_length(pattern) == length


def required(name: str, inner: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: inner}, "required": [name], **more}


SELF = {"$ref": "#"}
ENDLESS: list[dict[str, Any]] = [
    required("a", SELF),
    required("a", {"type": "array", "items": SELF, "minItems": 1}),
    required("a", {"anyOf": [SELF, {"allOf": [SELF, {}]}]}),
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"type": "array", "prefixItems": [{}, SELF], "minItems": 2},
]
ENDING: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": SELF}},
    required("a", {"type": "array", "items": SELF}),
    required("a", {"anyOf": [SELF, {"type": "null"}]}),
    required("a", SELF, type=["object", "null"]),
    required("b", {"const": {"$ref": "#"}}),
    required("a", {"$ref": "#/$defs/x~1y"}, **{"$defs": {"x/y": {"type": "null"}}}),
    {"type": "array", "prefixItems": [{}, SELF], "minItems": 1},
    {"properties": {"a": SELF}, "required": ["a"]},  # a number will do
]


@pytest.mark.parametrize("schema", ENDLESS, ids=str)
def test_schemas_without_end(schema: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match="no answer ends"):
        check_ends(schema)


@pytest.mark.parametrize("schema", ENDING, ids=str)
def test_schemas_with_an_end(schema: dict[str, Any]) -> None:
    check_ends(schema)
