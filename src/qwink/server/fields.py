"""What the JSON of all endpoints shares: lenient models, and OpenAI's fields for what we lack."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from qwink.server.failures import Failure, param_of

_MAX_NAMED = 16  # unknown fields that are named in an answer and in the log
# Other APIs' fields for pictures: to ignore one changes the answer.
_FOREIGN_PICTURES = ("attachments", "files", "image", "image_data", "image_url", "images")
_NAME = re.compile(r"[A-Za-z_][\w.\[\]-]{0,79}", re.ASCII)


class InvalidField(ValueError, Failure):
    """A field has an invalid value. A ValueError, so that pydantic reports it with its place.

    `field` is the name of a field below that place.
    """

    def __init__(self, message: str, code: str = "invalid_value", field: str | None = None) -> None:
        Failure.__init__(self, 400, message, code)
        self.field = field


class Lenient(BaseModel):
    """Known fields are checked strictly; `unknown_fields` lists the others."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, frozen=True)


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


INTEGRAL = BeforeValidator(_integral)  # 100.0 counts as 100
Count = Annotated[int, Field(ge=1), INTEGRAL]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field of OpenAI's for something that this server lacks.

    `nothing` says whether a value other than null asks for nothing; such a value is accepted.
    `advice` says what to write instead.
    """

    advice: str
    nothing: Callable[[Any], bool]
    code: str = "unsupported_field"


def among(*values: Any) -> Callable[[Any], bool]:
    """Whether a value equals one of `values` and has its type; 1.0 equals 1."""

    def is_one(value: Any) -> bool:
        value = _integral(value)
        return any(type(value) is type(other) and value == other for other in values)

    return is_one


def empty(value: Any) -> bool:
    """Whether a value is an empty text, list or object."""
    return isinstance(value, str | list | dict) and not value


def all_empty(value: Any) -> bool:
    """Whether a value is an object whose values are all null or empty."""
    return isinstance(value, dict) and all(one is None or empty(one) for one in value.values())


def without_unsupported(values: Any, table: Mapping[str, Unsupported]) -> Any:
    """The object without the fields of `table`. Raises InvalidField if one asks for something."""
    if not isinstance(values, dict):
        raise InvalidField("this must be a JSON object")
    for name, rule in table.items():
        value = values.get(name)
        if value is not None and not rule.nothing(value):
            what = name if rule.code == "unsupported_field" else f"this value of {name}"
            raise InvalidField(f"{what} is not supported: {rule.advice}", rule.code, name)
    return {name: value for name, value in values.items() if name not in table}


@dataclass(frozen=True, slots=True)
class UnknownField:
    """An unknown field. `similar` is the known field with the most similar name."""

    path: str  # such as messages[0].foo
    is_null: bool
    similar: str | None


def unknown_fields(model: BaseModel, place: tuple[int | str, ...] = ()) -> Iterator[UnknownField]:
    """The unknown fields of a request, in the order of its known ones, from outer to inner."""
    known = type(model).model_fields
    for name, value in (model.model_extra or {}).items():
        similar = difflib.get_close_matches(name[:80], known, 1, 0.8)
        path = param_of((*place, name))
        yield UnknownField(path, value is None, similar[0] if similar else None)
    for name in known:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from unknown_fields(value, (*place, name))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from unknown_fields(item, (*place, name, index))


def ignored_fields(model: BaseModel, strict: bool) -> tuple[list[str], list[str]]:
    """Names of the request's unknown fields for the log, and the warnings for its answer.

    Fields that are null ask for nothing and are left out. With `strict`, raises Failure for the
    first unknown field, null or not.
    """
    unknown = list(unknown_fields(model))
    if strict and unknown:
        first = unknown[0]
        advice = f"; did you mean {first.similar}?" if first.similar else "; leave it out"
        path = printable(first.path)
        raise Failure(400, f"unknown field {path}{advice}", "unknown_field", path)
    ignored = [field for field in unknown if not field.is_null]
    names = [printable(field.path) for field in ignored[:_MAX_NAMED]]
    warnings = [
        f"the unknown field {name} was ignored" + _advice(field)
        for name, field in zip(names, ignored, strict=False)
    ]
    if len(ignored) > _MAX_NAMED:
        warnings.append(f"{len(ignored) - _MAX_NAMED} more unknown fields were ignored")
    return names, warnings


def _advice(field: UnknownField) -> str:
    name = field.path.rpartition(".")[2].partition("[")[0]
    if name in _FOREIGN_PICTURES:
        return "; pictures go into a turn's content, as image_url"
    return f"; did you mean {field.similar}?" if field.similar else ""


def printable(path: str) -> str:
    """A field's path, unless it can hold a client's data instead of a name."""
    return path if _NAME.fullmatch(path) else "(a name with other characters)"
