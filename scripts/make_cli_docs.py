"""Write docs/cli.md from the command line's own help: `python scripts/make_cli_docs.py`.

With --check nothing is written; the exit code is 1 when the page is out of date.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from qwink.cli import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 100
INTRODUCTION = """\
# Command line

<!-- Made by scripts/make_cli_docs.py: change the help texts in src/qwink/cli, then `make docs`. -->

Answers go to stdout; hints, progress, warnings and errors to stderr. Exit codes: 0 success, 1 an
error that the message explains, 2 wrong usage, 3 some rows of a batch have an error, 4 the
answer was cut off at its default length, 130 interrupted.
"""


def help_of(*command: str) -> str:
    """What `qwink COMMAND --help` shows on a terminal of fixed width without colour."""
    environment = os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONUTF8": "1"}
    process = subprocess.run(
        [sys.executable, "-m", "qwink", *command, "--help"],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return "\n".join(line.rstrip() for line in process.stdout.strip().splitlines())


def commands(group: typer.Typer) -> Iterator[tuple[str, ...]]:
    """The words that call each command, those of groups after the others."""
    for command in group.registered_commands:
        if command.callback:
            yield (command.name or command.callback.__name__,)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            name = str(inner.typer_instance.info.name)
            yield from ((name, *words) for words in commands(inner.typer_instance))


def render() -> str:
    """The whole page, one section for each command."""
    sections = [INTRODUCTION, f"```text\n{help_of()}\n```\n"]
    sections += [
        f"## qwink {' '.join(words)}\n\n```text\n{help_of(*words)}\n```\n"
        for words in commands(app)
    ]
    return "\n".join(sections)


def main() -> int:
    """Write the page, or compare it."""
    page = render()
    if "--check" not in sys.argv[1:]:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, "utf-8")
    elif not PAGE.is_file() or PAGE.read_text("utf-8") != page:
        print(f"{PAGE} is out of date; run: make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
