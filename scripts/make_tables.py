"""Fills the tables of the README and the guide from the JSON under benchmarks/results/.

python -m scripts.make_tables          # write
python -m scripts.make_tables --check  # fail if one is out of date

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`; around it, people write.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.performance.layout import Results
from scripts.tables import guide, readme

ROOT = Path(__file__).resolve().parent.parent
TABLES: dict[str, dict[str, Callable[[Results], str]]] = {
    "README.md": {"speed": readme.ENGLISH.speed, "more": readme.ENGLISH.more},
    "README.zh.md": {"speed": readme.CHINESE.speed, "more": readme.CHINESE.more},
    "docs/choosing.md": {
        "recipes": guide.recipes,
        "tasks": guide.tasks,
        "letters": guide.letters,
        "sizes": guide.sizes,
        "threads": guide.threads,
    },
}
_PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def fill(page: str, tables: dict[str, Callable[[Results], str]], results: Results) -> str:
    """The page with its tables anew. Raises KeyError if it has a place that no table is for."""
    return _PLACE.sub(lambda m: f"{m[1]}\n{tables[m[2]](results).strip()}\n\n{m[3]}", page)


def main() -> None:
    results = Results(ROOT / "benchmarks" / "results")
    stale = []
    for name, tables in TABLES.items():
        path = ROOT / name
        before = path.read_text("utf-8")
        after = fill(before, tables, results)
        if after != before:
            stale.append(name)
            if "--check" not in sys.argv[1:]:
                path.write_text(after, "utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"out of date: {', '.join(stale)}; run make docs")


if __name__ == "__main__":
    main()
