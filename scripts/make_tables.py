"""Fills tables of the documentation from the JSON under benchmarks/results/ and from the code.

python -m scripts.make_tables          # write
python -m scripts.make_tables --check  # fail if one is out of date

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`; the rest of a page is
written by hand. Numbers of lines change with every commit, so --check allows them some percent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.performance.layout import Results
from scripts.tables import guide, readme, scale, sizes

ROOT = Path(__file__).resolve().parent.parent
TABLES: dict[str, dict[str, Callable[[Results], str]]] = {
    "README.md": {
        "speed": readme.ENGLISH.speed,
        "processors": readme.ENGLISH.processors,
        "more": readme.ENGLISH.more,
    },
    "README.zh.md": {
        "speed": readme.CHINESE.speed,
        "processors": readme.CHINESE.processors,
        "more": readme.CHINESE.more,
    },
    "docs/architecture.md": {"sizes": sizes.sizes},
    "docs/scale.md": {"capacity": scale.capacity, "plan": scale.plan},
    "docs/choosing.md": {
        "recipes": guide.recipes,
        "tasks": guide.tasks,
        "letters": guide.letters,
        "sizes": guide.sizes,
        "threads": guide.threads,
    },
}
TOLERANCES = {"docs/architecture.md": 0.05}  # of the numbers of a page; else none
_PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_NUMBER = re.compile(r"\d[\d,]*")


def fill(page: str, tables: dict[str, Callable[[Results], str]], results: Results) -> str:
    """The page with its tables filled. Raises KeyError for a place without a table."""
    return _PLACE.sub(lambda m: f"{m[1]}\n{tables[m[2]](results).strip()}\n\n{m[3]}", page)


def is_current(before: str, after: str, tolerance: float = 0.0) -> bool:
    """Whether the pages are equal but for numbers that differ by a share of up to `tolerance`."""
    if not tolerance or _NUMBER.sub("", before) != _NUMBER.sub("", after):
        return before == after
    pairs = zip(_NUMBER.findall(before), _NUMBER.findall(after), strict=True)
    values = [[int(number.replace(",", "")) for number in pair] for pair in pairs]
    return all(abs(old - new) <= tolerance * new for old, new in values)


def main() -> None:
    check = "--check" in sys.argv[1:]
    results = Results(ROOT / "benchmarks" / "results")
    stale = []
    for name, tables in TABLES.items():
        path = ROOT / name
        before = path.read_text("utf-8")
        after = fill(before, tables, results)
        if not check:
            path.write_text(after, "utf-8")
        elif not is_current(before, after, TOLERANCES.get(name, 0.0)):
            stale.append(name)
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}; run make docs")


if __name__ == "__main__":
    main()
