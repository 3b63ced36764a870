"""Writes docs/performance.md and its charts from the JSON under benchmarks/results/.

python -m scripts.make_performance          # write
python -m scripts.make_performance --check  # fail if something is out of date

A section is a module of scripts/performance with a function `section`, which returns None if its
results are missing. Sections appear in the order of SECTIONS.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.performance import (
    charts,
    cost,
    introduction,
    jobs,
    ladder,
    load,
    peers,
    processors,
    quality,
    repeat,
    serving,
    speed,
    stages,
    start,
)
from scripts.performance.layout import Results, Section

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = (
    *(
        introduction,
        ladder,
        peers,
        processors,
        speed,
        stages,
        start,
        serving,
        jobs,
        load,
        cost,
        quality,
    ),
    repeat,
)


def sections(results: Results) -> list[Section]:
    made = [module.section(results) for module in SECTIONS]
    return [section for section in made if section is not None]


def stale(root: Path) -> list[str]:
    """Files below `root` that differ from what its results give."""
    found = sections(Results(root / "benchmarks" / "results"))
    page = root / "docs" / "performance.md"
    files = [] if page.is_file() and page.read_text("utf-8") == render(found) else [str(page)]
    images = root / "docs" / "images"
    shown = [chart for section in found for chart in section.charts]
    files += [f"{chart.name}.svg" for chart in shown if not charts.is_current(chart, images)]
    return files


def write(root: Path) -> None:
    found = sections(Results(root / "benchmarks" / "results"))
    (root / "docs" / "images").mkdir(parents=True, exist_ok=True)
    for section in found:
        for chart in section.charts:
            charts.write(chart, root / "docs" / "images")
    (root / "docs" / "performance.md").write_text(render(found), "utf-8")


def render(found: list[Section]) -> str:
    return "\n".join(section.text.strip() + "\n" for section in found)


def main() -> None:
    if "--check" not in sys.argv[1:]:
        write(ROOT)
    elif files := stale(ROOT):
        sys.exit(f"out of date: {', '.join(files)}; run make docs")


if __name__ == "__main__":
    main()
