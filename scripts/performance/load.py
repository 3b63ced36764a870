"""A server under rising load."""

from __future__ import annotations

from scripts.performance.layout import (
    Chart,
    Document,
    Results,
    Section,
    family_section,
    machine,
    milliseconds,
    table,
)

TEXT = """## Under load

By `qwink bench load`, over HTTP on the same machine: each of the concurrent users asks
about one new picture after the other. The client shares the processors with the server.
"""


def section(results: Results) -> Section | None:
    return family_section(results.family("load"), "load", TEXT, "draw_load", _one)


def _one(name: str, result: Document, chart: Chart) -> str:
    width, height = result["picture_size"]
    repeats = f", {result['repeats']:.0%} of them shown again" if result["repeats"] else ""
    head = ["users", "answered", "first token ms", "p95", "ms per token", "p95"]
    head += ["longest gap ms", "tokens/s", "images/hour"]
    return "\n".join(
        [
            f"### {name}\n",
            f"{result['model']}, pictures of {width}×{height} px{repeats}, answers of up to "
            f"{result['max_tokens']} tokens. {machine(result)}",
            chart.as_image(f"{name} under load"),
            table(head, map(_level, result["levels"])),
        ]
    )


def _level(level: Document) -> list[str]:
    def figure(name: str, key: str) -> str:
        return milliseconds(level[name][key]) if level[name] else "—"

    failed = sum(level["errors"].values())
    kinds = "".join(f", {count}× {kind}" for kind, count in level["errors"].items())
    return [
        str(level["concurrency"]),
        f"{level['num_requests'] - failed} of {level['num_requests']}{kinds}",
        figure("first_token_ms", "median"),
        figure("first_token_ms", "p95"),
        figure("token_ms", "median"),
        figure("token_ms", "p95"),
        figure("gap_ms", "max"),
        f"{level['tokens_per_s']:.1f}",
        f"{3600 * level['requests_per_s']:.0f}",
    ]
