"""Plots of results. Needs matplotlib: `pip install qwink[bench]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from qwink.types import STAGES

# Equal data give an equal file: no random ids. Text is stored as text, which is smaller.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "qwink",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.ymargin": 0.1,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}

STAGE_COLOURS = ("#9ecae9", "#4c78a8", "#72b7b2", "#f58518", "#e45756", "#b279a2")


def draw_stages(document: dict[str, Any]) -> Figure:
    """A bar for each size, made of its stages; in black, the floors of encode and prefill.

    From a result of `bench stages`: its run with the most threads.
    """
    sizes = document["runs"][-1]["sizes"]
    names = [f"{size['size']}\n{size['image_tokens']} tokens" for size in sizes]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2))
        axes = figure.subplots()
        left, floors = [0.0] * len(sizes), []
        for stage, colour in zip(STAGES, STAGE_COLOURS, strict=True):
            spent = [size["stages_ms"][stage]["median"] for size in sizes]
            axes.barh(names, spent, left=left, color=colour, label=stage)
            if stage in ("encode", "prefill"):
                floors.append((list(left), [size["card"][stage]["floor_ms"] for size in sizes]))
            left = [start + more for start, more in zip(left, spent, strict=True)]
        for (start, least), label in zip(floors, ("floor", None), strict=True):
            axes.barh(names, least, height=0.1, left=start, color="black", label=label)
        axes.set(xlabel="ms")
        axes.invert_yaxis()
        axes.legend(ncols=7, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def draw_load(document: dict[str, Any]) -> Figure:
    """Latency and throughput by number of users, from a result of `bench load`."""
    levels = [level for level in document["levels"] if level["first_token_ms"]]
    users = [level["concurrency"] for level in levels]
    first = [level["first_token_ms"] for level in levels]
    gaps = [level["gap_ms"] for level in levels]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 3.2))
        waits, rates = figure.subplots(1, 2)
        (line,) = waits.plot(users, [x["median"] for x in first], "o-", label="first token, median")
        late = {"color": line.get_color(), "label": "first token, 95th percentile"}
        waits.plot(users, [x["p95"] for x in first], "o--", **late)
        if all(gaps):
            label = "between pieces, 95th percentile"
            waits.plot(users, [x["p95"] for x in gaps], "s:", label=label)
        waits.legend()
        rates.plot(users, [level["tokens_per_s"] for level in levels], "o-")
        for axes, unit in ((waits, "ms"), (rates, "tokens per second")):
            axes.set(xlabel="users at once", ylabel=unit, xticks=users)
            axes.set_ylim(bottom=0)
        figure.suptitle(f"{document['model']}, answers of up to {document['max_tokens']} tokens")
    return figure


def save(figure: Figure, path: Path, description: str = "") -> None:
    """Write PNG or SVG, by the path's ending. `description` goes into an SVG's metadata."""
    with mpl.rc_context(STYLE):
        if path.suffix == ".svg":
            metadata = {"Date": None, "Creator": None, "Description": description or None}
            figure.savefig(path, metadata=metadata)
        else:
            figure.savefig(path, dpi=150)
