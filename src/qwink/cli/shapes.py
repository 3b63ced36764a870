"""The options of `qwink ask` and `qwink batch` for the shape of the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from qwink.cli.console import as_utf8
from qwink.errors import OptionError

Schema = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|JSON",
        callback=as_utf8,
        help="Answer with JSON that has this JSON Schema, compact. Needs the extra structured, as "
        "--regex and --grammar do.",
    ),
]
Choices = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        callback=as_utf8,
        help="Answer with one of these texts; --json prints the probability of each.",
    ),
]
Regex = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        callback=as_utf8,
        help="Answer with a text that this regular expression matches as a whole.",
    ),
]
Grammar = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Answer with a text of this grammar, in Lark or GBNF."),
]


def shape_options(
    schema: str | None, choices: str | None, regex: str | None, grammar: Path | None
) -> dict[str, Any]:
    """The options of `VLM.ask` for the answer's shape, checked as far as no model is needed.

    Raises OptionError (ShapeError).
    """
    from qwink.inputs.shape import shape_of
    from qwink.runtime.grammars import check_installed, option_of

    given: dict[str, Any] = {
        "schema": None if schema is None else _schema(schema),
        "choices": None if choices is None else [one.strip() for one in choices.split(",")],
        "regex": regex,
        "grammar": None if grammar is None else _read("grammar", grammar),
    }
    options = {name: value for name, value in given.items() if value is not None}
    shape = shape_of(**options)
    if shape is not None and shape.kind != "choices":
        check_installed(option_of(shape))
    return options


def _schema(text: str) -> str:
    """The JSON text of a schema, which may be in a file."""
    return text if text.lstrip().startswith("{") else _read("schema", Path(text))


def _read(option: str, path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = '; give a file, or JSON such as {"type": "object"}' if option == "schema" else ""
        raise OptionError(f"{option}: cannot read {path}: {reason}{hint}") from None
