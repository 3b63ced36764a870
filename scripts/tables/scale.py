"""The tables of docs/scale.md."""

from __future__ import annotations

from qwink.errors import OptionError
from qwink.lab.cost.price import HOUR_MS
from qwink.lab.cost.services import services
from qwink.lab.record import parse
from scripts.performance.layout import Results, milliseconds, table

ANSWER_TOKENS = 64
NOT_MEASURED = "*Not measured here so far; `{}` measures it on your machine.*"


def capacity(results: Results) -> str:
    """What a machine answers in an hour, by model and size of the picture."""
    rows = []
    for name, document in results.family("stages").items():
        run = document["runs"][-1]
        try:
            found = services(parse(document), ANSWER_TOKENS)
        except OptionError:  # its answers were too short
            continue
        for size in run["sizes"]:
            service = found[size["size"]]
            rows.append(
                [
                    name,
                    size["size"],
                    str(size["image_tokens"]),
                    f"{service.request_ms / 1e3:.2f}",
                    milliseconds(size["stages_ms"]["encode"]["median"]),
                    f"{service.images_per_hour:,.0f}",
                    f"{HOUR_MS / service.request_ms / run['threads']:,.0f}",
                    f"{size['peak_rss_bytes'] / 2**30:.1f}",
                    f"{size['card']['kv_bytes_per_token'] / 2**10:,.0f}",
                ]
            )
    head = ["", "size", "image tokens", "s per image", "of it encode, ms", "images per hour"]
    head += ["per core", "peak GiB", "KiB per token"]
    return table(head, rows) if rows else NOT_MEASURED.format("qwink bench stages")


def plan(results: Results) -> str:
    """Predicted and measured percentiles."""
    document = results.read("plan")
    if document is None:
        return NOT_MEASURED.format("python -m qwink.lab.plan.check")
    rows = []
    for one in document["compared"]:
        for name, label in (("first_token_ms", "first token"), ("total_ms", "whole answer")):
            for part in ("p50", "p95"):
                predicted, measured = one["predicted"][name][part], one[name][part]
                rows.append(
                    [
                        one["routing"],
                        f"{label}, {part}",
                        milliseconds(predicted),
                        milliseconds(measured),
                        f"{predicted / measured:.2f}",
                    ]
                )
        share = one["predicted"]["found_share"]
        rows.append(
            [
                one["routing"],
                "pictures found",
                f"{share:.0%}",
                f"{one['found_share']:.0%}",
                f"{share / one['found_share']:.2f}",
            ]
        )
    head = ["routed by", "", "predicted, ms", "measured, ms", "ratio"]
    about = (
        f"{document['model']}, {document['replicas']} replicas, {document['requests']} requests, "
        f"{document['rate']:.0f} a second:"
    )
    return f"{about}\n\n{table(head, rows)}"
