"""Output of all benchmarks: tables on stderr, one JSON document on stdout and in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from qwink.errors import OptionError

WIDTH = 140  # of tables, where stderr is no terminal


def check_out(path: Path | None) -> None:
    """Call before measuring. Raises OptionError for a file that cannot be written."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise OptionError(f"{path}: cannot be written; give a file in a folder that exists")


def finish(document: dict[str, Any], out: Path | None) -> None:
    """Print the document as one line, and write it to `out`, indented."""
    from qwink.lab.record import write

    if out is not None:
        write(out, document)
    typer.echo(json.dumps(document, ensure_ascii=False).encode())


def numbers(text: str, option: str) -> tuple[int, ...]:
    """1,2,4 as numbers, sorted, without duplicates. Raises OptionError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise OptionError(f"{option} is {text!r}; it must be numbers above 0 such as 1,2,4")
    return tuple(sorted({int(part) for part in parts}))


def show(title: str, head: list[str], rows: list[list[str]]) -> None:
    """A table on stderr; all columns but the first are numbers."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(head):
        table.add_column(name, justify="right" if index else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(title, style="bold", markup=False)
    console.print(table)
    console.print()


def milliseconds(value: float | None) -> str:
    """Three digits: 0.42, 4.2, 42, 420."""
    if value is None:
        return "—"
    digits = 2 if value < 1 else 1 if value < 10 else 0
    return f"{value:.{digits}f}"
