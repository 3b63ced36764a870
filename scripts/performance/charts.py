"""Charts as SVG with a digest of their data in the metadata.

Files of different versions of matplotlib differ although they show the same. So charts are compared
by the digest of their data and of the code that draws them.
"""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from scripts.performance.layout import Chart


def digest(chart: Chart) -> str:
    """SHA-256 of the chart's data and of the module that draws it."""
    spec = find_spec(chart.module)
    assert spec is not None, chart.module
    assert spec.origin is not None, chart.module
    state = hashlib.sha256(json.dumps(chart.document, sort_keys=True).encode())
    state.update(chart.function.encode())
    # As text, since a checkout may have other line ends.
    state.update(Path(spec.origin).read_text("utf-8").encode())
    return state.hexdigest()


def is_current(chart: Chart, folder: Path) -> bool:
    path = folder / f"{chart.name}.svg"
    return path.is_file() and digest(chart) in path.read_text("utf-8")


def write(chart: Chart, folder: Path) -> None:
    """Draw it, unless it is there already."""
    if not is_current(chart, folder):
        from qwink.lab.plot import save  # imports matplotlib, which --check does not need

        figure = getattr(import_module(chart.module), chart.function)(chart.document)
        save(figure, folder / f"{chart.name}.svg", f"sha256:{digest(chart)}")
