"""From process start to the first answer."""

from __future__ import annotations

from scripts.performance.layout import Results, Section, spread, table


def section(results: Results) -> Section | None:
    result = results.read("start")
    if result is None:
        return None
    rows = [["`import qwink`", spread(result["import_qwink_ms"])]]
    for name, figure in result["ask_ms"].items():
        what = "whole answer" if name == "nano" else "first token"
        rows.append([f"`qwink ask`, {name}, {what}", spread(figure)])
    head = ["from process start, files in the page cache", "ms"]
    return Section(f"## Start\n\n{table(head, rows)}")
