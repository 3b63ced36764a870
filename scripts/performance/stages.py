"""Times of the stages, and their floors on the measured machine."""

from __future__ import annotations

from typing import Any

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

TEXT = """## Stages, and the distance to the floor

By `qwink bench stages`: every answer computed in full, no caches. *Floor* is the least time for the
model's work at the speed of the same machine in a short trial of int8 products, fp32 products and
memory reads with the same threads: the longer of computing and reading.
"""
STAGES = ("decode", "resize", "encode", "prefill")
COLD = ("per token", "cold start: loaded", "cold start: first token")


def section(results: Results) -> Section | None:
    return family_section(results.family("stages"), "stages", TEXT, "draw_stages", _one)


def _one(name: str, result: Document, chart: Chart) -> str:
    width, height = result["picture_size"]
    last = result["runs"][-1]
    ceilings = last["ceilings"]
    return "\n".join(
        [
            f"### {name}\n",
            f"{result['model']}, recipe `{result['recipe']}`, a picture of {width}×{height} px, "
            f"{result['rounds']} rounds; medians in ms with {last['threads']} threads. "
            f"{machine(result)}",
            chart.as_image(f"Stages of {name} by size"),
            table(
                ["size", "image tokens", *STAGES, "first token", "p95", "per token", "peak GB"],
                map(_size, last["sizes"]),
            ),
            f"Against the floor (int8 {ceilings['int8_gflop_per_s']:.0f}, "
            f"fp32 {ceilings['float_gflop_per_s']:.0f} GFLOP/s, "
            f"reads {ceilings['read_gb_per_s']:.1f} GB/s):\n",
            table(
                [
                    "size",
                    "stage",
                    "GFLOP",
                    "GB read",
                    "floor ms",
                    "bound by",
                    "measured",
                    "× floor",
                ],
                [
                    _floor(size["size"], stage, size["card"][stage])
                    for size in last["sizes"]
                    for stage in ("encode", "prefill", "token")
                ],
            ),
            table(
                ["threads", *(f"first token, {size['size']}" for size in last["sizes"]), *COLD],
                map(_threads, result["runs"]),
            ),
        ]
    )


def _size(size: Document) -> list[str]:
    return [
        size["size"],
        str(size["image_tokens"]),
        *(milliseconds(size["stages_ms"][stage]["median"]) for stage in STAGES),
        milliseconds(size["first_token_ms"]["median"]),
        milliseconds(size["first_token_ms"]["p95"]),
        _token(size),
        f"{size['peak_rss_bytes'] / 1e9:.2f}",
    ]


def _token(size: Document) -> str:
    return milliseconds(size["token_ms"]["median"]) if size["token_ms"] else "—"


def _floor(size: str, stage: str, floor: dict[str, Any]) -> list[str]:
    measured, times = floor["measured_ms"], floor["times_floor"]
    return [
        size if stage == "encode" else "",
        stage,
        f"{floor['gflop']:.3g}" if floor["gflop"] < 100 else f"{floor['gflop']:.0f}",
        f"{floor['read_bytes'] / 1e9:.3g}",
        milliseconds(floor["floor_ms"]),
        floor["bound_by"],
        "—" if measured is None else milliseconds(measured),
        "—" if times is None else f"**{times:.1f}**",
    ]


def _threads(run: Document) -> list[str]:
    cold = run["cold_start"]
    return [
        str(run["threads"]),
        *(milliseconds(size["first_token_ms"]["median"]) for size in run["sizes"]),
        _token(run["sizes"][0]),
        milliseconds(cold["loaded_ms"]),
        milliseconds(cold["first_token_ms"]),
    ]
