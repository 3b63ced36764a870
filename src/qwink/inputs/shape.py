"""The shape of an answer, as users write it: a schema, choices, a regular expression, a grammar.

A schema is JSON Schema as a dictionary or as text, or a type that pydantic understands: a model, a
dataclass, `list[Invoice]`. Limits keep a shape from taking more time or memory than an answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from qwink.errors import OptionError, ShapeError
from qwink.extras import install_command
from qwink.inputs.repetitions import expanded_length
from qwink.inputs.satisfiable import check_ends
from qwink.types import Shape

MAX_BYTES = 256 << 10
MAX_DEPTH = 64
MAX_ALTERNATIVES = 4_000
MAX_CHOICES = 256
MAX_CHOICE_BYTES = 32 << 10  # all together
MAX_EXPANDED = 20_000  # characters of a pattern with its repetitions written out
MAX_PROPERTIES = 1_000
_NAMED = ("properties", "$defs", "patternProperties")  # their keys are no keywords
_DATA = ("default", "const", "enum", "examples")
_BRANCHES = ("enum", "anyOf", "oneOf", "allOf")


def shape_of(
    schema: Any = None,
    choices: Sequence[str] | None = None,
    regex: str | None = None,
    grammar: str | None = None,
) -> Shape | None:
    """The shape that the options ask for; None if they ask for nothing.

    Raises ShapeError if a shape is not valid or too large, and OptionError if two are given.
    """
    options = {"schema": schema, "choices": choices, "regex": regex, "grammar": grammar}
    given = [name for name, value in options.items() if value is not None]
    if not given:
        return None
    if len(given) > 1:
        raise OptionError(f"{given[0]} and {given[1]} exclude each other; give one of them")
    if schema is not None:
        return schema_shape(schema)
    if choices is not None:
        return choices_shape(choices)
    if regex is not None:
        return regex_shape(regex)
    assert grammar is not None
    return grammar_shape(grammar)


def json_object() -> Shape:
    """Any JSON object."""
    return Shape("json_object", read=json.loads)


def schema_shape(schema: Any, *, strict: bool = True) -> Shape:
    """A JSON Schema as a dictionary or as text, or a type that pydantic understands.

    A type's objects have no properties beyond those that it names. Unless `strict`, and for types,
    keywords that cannot be enforced are ignored with a warning. Raises ShapeError, OptionError.
    """
    read: Callable[[str], Any] = json.loads
    if isinstance(schema, str | bytes):
        schema = _loaded(schema)
    elif not isinstance(schema, Mapping):
        schema, read = _from_type(schema)
        strict = False  # the type checks what the grammar cannot
    if not isinstance(schema, Mapping):
        raise ShapeError("schema", 'it must be a JSON object such as {"type": "object"}')
    try:
        source = json.dumps(schema, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ShapeError("schema", f"it is not JSON ({error})") from None
    except RecursionError:
        raise ShapeError("schema", f"it is nested more than {MAX_DEPTH} deep; flatten it") from None
    _check_size("schema", source)
    _check_schema(schema)
    check_ends(schema)
    return Shape("json_schema", source, strict, read=read)


def choices_shape(choices: Sequence[str]) -> Shape:
    """One of several texts. Raises ShapeError."""
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        raise ShapeError("choices", "it must be a list of texts")
    if not choices or not all(isinstance(text, str) and text for text in choices):
        raise ShapeError("choices", "it must be a list of texts, none empty")
    if len(set(choices)) < len(choices):
        raise ShapeError("choices", "a text occurs twice; leave one of them out")
    if len(choices) > MAX_CHOICES:
        raise ShapeError("choices", f"{len(choices)} are too many; give at most {MAX_CHOICES}")
    if sum(len(text.encode(errors="surrogatepass")) for text in choices) > MAX_CHOICE_BYTES:
        raise ShapeError("choices", f"they take more than {MAX_CHOICE_BYTES >> 10} KiB")
    for text in choices:
        _check_size("choices", text)
    return Shape("choices", json.dumps(list(choices), ensure_ascii=False))


def regex_shape(regex: str) -> Shape:
    """A text that a regular expression matches as a whole. Raises ShapeError."""
    _check_text("regex", regex)
    _check_pattern("regex", regex)
    return Shape("regex", regex)


def grammar_shape(grammar: str) -> Shape:
    """A text of a grammar: llguidance's variant of Lark, or GBNF. Raises ShapeError."""
    _check_text("grammar", grammar)
    _check_pattern("grammar", grammar)
    return Shape("grammar", grammar)


def _check_text(option: str, text: Any) -> None:
    if not isinstance(text, str) or not text:
        raise ShapeError(option, "it must be a text that is not empty")
    _check_size(option, text)


def _check_size(option: str, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ShapeError(option, "it has half of a surrogate pair; write valid Unicode") from None
    if size > MAX_BYTES:
        raise ShapeError(option, f"it has more than {MAX_BYTES >> 10} KiB; make it smaller")


def _check_pattern(option: str, pattern: str) -> None:
    if expanded_length(pattern) > MAX_EXPANDED:
        message = f"its repetitions stand for more than {MAX_EXPANDED} characters; lower them"
        raise ShapeError(option, message)


def _loaded(text: str | bytes) -> Any:
    if len(text) > MAX_BYTES:
        raise ShapeError("schema", f"it has more than {MAX_BYTES >> 10} KiB; make it smaller")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ShapeError("schema", f"it is not JSON ({error})") from None


def _check_schema(schema: Any) -> None:
    """Raises ShapeError for a schema that is too deep, or has too many parts."""
    alternatives = properties = 0
    waiting = [(schema, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ShapeError("schema", f"it is nested more than {MAX_DEPTH} deep; flatten it")
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key in _BRANCHES and isinstance(inner, list | tuple):
                    alternatives += len(inner)
                if key in _NAMED and isinstance(inner, Mapping):
                    properties += len(inner)
                if key == "pattern" and isinstance(inner, str):
                    _check_pattern("schema", inner)
                waiting.append((inner, depth + 1))
        elif isinstance(value, list | tuple):
            waiting += [(inner, depth + 1) for inner in value]
    if properties > MAX_PROPERTIES:
        message = f"it has {properties} properties; at most {MAX_PROPERTIES} are possible"
        raise ShapeError("schema", message)
    if alternatives > MAX_ALTERNATIVES:
        message = f"it has {alternatives} alternatives; at most {MAX_ALTERNATIVES} are possible"
        raise ShapeError("schema", message)


def _from_type(kind: Any) -> tuple[Any, Callable[[str], Any]]:
    """The schema of a type, and what makes an object of it from JSON."""
    if find_spec("pydantic") is None:
        command = install_command("structured")
        raise OptionError(f"schema is a type, which needs pydantic; install it with: {command}")
    from pydantic import PydanticUserError, TypeAdapter
    from pydantic.errors import PydanticInvalidForJsonSchema

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        schema = adapter.json_schema()
    except (PydanticUserError, PydanticInvalidForJsonSchema) as error:
        message = str(error).strip().split("\n", 1)[0]
        raise ShapeError("schema", f"pydantic cannot make a schema of it: {message}") from None
    return _closed(schema), adapter.validate_json


def _closed(schema: Any) -> Any:
    """A type's schema with no properties beyond those that it names.

    A set is made of any list, so its items may be equal.
    """
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            closed[key] = {name: _closed(one) for name, one in value.items()}
        elif key in _DATA:
            closed[key] = value
        elif key != "uniqueItems":
            closed[key] = _closed(value)
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        closed["additionalProperties"] = False
    return closed
