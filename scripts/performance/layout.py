"""Shared by all sections: results by name, charts, tables, formats of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwink.lab.record import read

Document = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """The JSON documents of a folder."""

    folder: Path

    def read(self, name: str) -> Document | None:
        """The document of NAME.json; None if there is none, which leaves its section out."""
        path = self.folder / f"{name}.json"
        return read(path).document() if path.is_file() else None

    def family(self, prefix: str) -> dict[str, Document]:
        """load-nano.json, load-fast.json, ... as nano, fast, ..., in order of name."""
        paths = sorted(self.folder.glob(f"{prefix}-*.json"))
        return {path.stem.removeprefix(f"{prefix}-"): read(path).document() for path in paths}


@dataclass(frozen=True)
class Chart:
    """docs/images/NAME.svg, which `function` of `module` draws from `document`."""

    name: str
    document: Document
    module: str
    function: str

    def as_image(self, alternative: str) -> str:
        return f"![{alternative}](images/{self.name}.svg)\n"


@dataclass(frozen=True)
class Section:
    """A part of the page, and the charts that it shows."""

    text: str
    charts: tuple[Chart, ...] = ()


def family_section(
    found: dict[str, Document],
    prefix: str,
    introduction: str,
    function: str,
    describe: Callable[[str, Document, Chart], str],
) -> Section | None:
    """A part for each result of a family, with a chart by `function` of qwink.lab.plot."""
    if not found:
        return None
    charts = {
        name: Chart(f"{prefix}-{name}", document, "qwink.lab.plot", function)
        for name, document in found.items()
    }
    parts = [describe(name, document, charts[name]) for name, document in found.items()]
    return Section("\n".join([introduction, *parts]), tuple(charts.values()))


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def spread(figure: dict[str, float], digits: int = 0) -> str:
    """42 (40–45): the median, the least and the largest."""
    median, low, high = (f"{figure[key]:.{digits}f}" for key in ("median", "min", "max"))
    return f"{median} ({low}–{high})"


def milliseconds(value: float) -> str:
    """Three digits: 0.42, 4.2, 42, 420."""
    return f"{value:.{2 if value < 1 else 1 if value < 10 else 0}f}"


def machine(result: Document) -> str:
    """One line on the hardware, versions and commit of a result."""
    facts = result["facts"]
    hardware, versions = facts["hardware"], facts["versions"]
    parts = [f"{hardware['num_cpus']} CPUs ({hardware['cpu']}: {', '.join(hardware['features'])})"]
    if hardware.get("accelerator"):
        parts.append(hardware["accelerator"])
    used = ", ".join(f"{name} {version}" for name, version in versions.items())
    commit = facts.get("commit")
    changed = ", with changes" if facts.get("modified") else ""
    return f"{', '.join(parts)}. {used}{f', commit {commit[:10]}{changed}' if commit else ''}\n"
