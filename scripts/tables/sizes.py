"""The numbers of lines that docs/architecture.md states."""

from __future__ import annotations

from pathlib import Path

from scripts.performance.layout import Results, table

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "src/qwink"
# The measurements and the commands that show them.
MEASURES = ("lab/", "cli/bench/", "cli/verify.py", "cli/comparison.py")
SUFFIXES = (".py", ".c", ".h")


def count(root: Path = ROOT) -> dict[str, int]:
    """Lines of source: what answers, in Python and in C, what measures, and what is not shipped."""
    lines = {"answers": 0, "kernels": 0, "measures": 0, "tools": 0}
    for path in sorted((root / PACKAGE).rglob("*")):
        if path.suffix in SUFFIXES:
            name = path.relative_to(root / PACKAGE).as_posix()
            part = "answers" if path.suffix == ".py" else "kernels"
            lines["measures" if name.startswith(MEASURES) else part] += _lines(path)
    for folder in ("benchmarks", "scripts"):
        lines["tools"] += sum(map(_lines, (root / folder).rglob("*.py")))
    return lines


def sizes(_: Results) -> str:
    """A row for each part, in hundreds of lines."""
    lines = {name: f"{round(number, -2):,}" for name, number in count().items()}
    kernels = f"{lines['answers']} of Python, {lines['kernels']} of C"
    return table(
        ["", "where", "lines"],
        [
            ["**This answers**", "`src/qwink` without `lab` and its commands", kernels],
            [
                "**This measures**",
                "`src/qwink/lab`, `cli/bench`, `cli/verify`, `cli/comparison`",
                lines["measures"],
            ],
            [
                "Not shipped",
                "`benchmarks`: peers' installation, stand-in checkpoints, nano's accuracy; "
                "`scripts`: generated documentation",
                lines["tools"],
            ],
        ],
    )


def _lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())
