"""The ladder as a plot. Needs matplotlib: `pip install qwink[bench]`."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from qwink.lab.plot import STYLE


def draw_ladder(document: dict[str, Any]) -> Figure:
    """A point for each rung: milliseconds per answer, and the gain over the first rung.

    The scale is logarithmic.
    """
    rungs = document["rungs"]
    names = [f"{rung['key']} {rung['name']}" for rung in rungs]
    spent = [rung["times"]["per_answer_ms"] for rung in rungs]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 0.8 + 0.32 * len(rungs)))
        axes = figure.subplots()
        axes.plot(spent, names, "o")
        for rung, name, value in zip(rungs, names, spent, strict=True):
            label = f"{value:.0f} ms, {rung['gain_over_first']:.3g}×"
            axes.annotate(label, (value, name), (8, -3), textcoords="offset points")
        axes.set(xlabel="ms of an answer", xscale="log")
        axes.margins(x=0.2, y=0.1)
        axes.invert_yaxis()
    return figure
