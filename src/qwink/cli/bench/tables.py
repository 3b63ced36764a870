"""Results of `qwink bench` as tables on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwink.cli.bench.output import milliseconds, show
from qwink.cli.console import format_bytes

if TYPE_CHECKING:
    from qwink.lab.cost.card import Floor
    from qwink.lab.cost.price import Bill
    from qwink.lab.load.measure import LoadResult
    from qwink.lab.stages.measure import SizeResult, StagesResult
    from qwink.types import Stage

_SHOWN: tuple[Stage, ...] = ("decode", "resize", "encode", "prefill", "generate")


def show_stages(result: StagesResult) -> None:
    """A table for each number of threads, then the card of the last one."""
    head = ["size", "tokens", *_SHOWN, "per token", "total", "first token", "p95", "spread", "peak"]
    for run in result.runs:
        show(
            f"{result.model} {result.recipe}, {_threads(run.threads)}: median ms; p95 and spread "
            "of the first token",
            head,
            [_size_row(row) for row in run.sizes],
        )
    show(
        f"cold start, {result.runs[0].cold_start.size}: ms from the start of the process",
        ["threads", "loaded", "first token"],
        [
            [
                str(run.threads),
                milliseconds(run.cold_start.loaded_ms),
                milliseconds(run.cold_start.first_token_ms),
            ]
            for run in result.runs
        ],
    )
    last = result.runs[-1]
    ceilings = last.ceilings
    show(
        f"floors with {_threads(last.threads)}: int8 {ceilings.int8_gflop_per_s:.0f} GFLOP/s, "
        f"fp32 {ceilings.float_gflop_per_s:.0f} GFLOP/s, "
        f"memory reads {ceilings.read_gb_per_s:.1f} GB/s; "
        f"keys and values take {format_bytes(last.sizes[0].card.kv_bytes_per_token)} a token",
        ["size", "stage", "GFLOP", "reads", "floor ms", "bound by", "measured ms", "× floor"],
        [
            [row.size if stage == "encode" else "", stage, *_floor_row(getattr(row.card, stage))]
            for row in last.sizes
            for stage in ("encode", "prefill", "token")
        ],
    )


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _size_row(row: SizeResult) -> list[str]:
    return [
        row.size,
        f"{row.image_tokens}+{row.prompt_tokens - row.image_tokens}",
        *(milliseconds(row.stages_ms[stage].median) for stage in _SHOWN),
        milliseconds(row.token_ms.median if row.token_ms else None),
        milliseconds(row.total_ms.median),
        milliseconds(row.first_token_ms.median),
        milliseconds(row.first_token_ms.p95),
        f"{row.first_token_ms.spread:.0%}",
        format_bytes(row.peak_rss_bytes),
    ]


def _floor_row(floor: Floor) -> list[str]:
    return [
        f"{floor.gflop:.3g}" if floor.gflop < 100 else f"{floor.gflop:.0f}",
        format_bytes(floor.read_bytes),
        milliseconds(floor.floor_ms),
        floor.bound_by,
        milliseconds(floor.measured_ms),
        "—" if floor.times_floor is None else f"{floor.times_floor:.1f}",
    ]


def show_load(result: LoadResult) -> None:
    """A row for each number of users."""
    head = ["users", "answered", "first token", "p95", "per token", "p95", "longest gap"]
    rows = []
    for level in result.levels:
        figures = (
            level.first_token_ms.median if level.first_token_ms else None,
            level.first_token_ms.p95 if level.first_token_ms else None,
            level.token_ms.median if level.token_ms else None,
            level.token_ms.p95 if level.token_ms else None,
            level.gap_ms.max if level.gap_ms else None,
        )
        failed = sum(level.errors.values())
        rows.append(
            [
                str(level.concurrency),
                f"{level.num_requests - failed} of {level.num_requests}",
                *map(milliseconds, figures),
                f"{level.tokens_per_s:.1f}",
                f"{level.requests_per_s * 3600:.0f}",
                ", ".join(f"{count}× {kind}" for kind, count in level.errors.items()),
            ]
        )
    show(f"{result.model} under load, ms", [*head, "tokens/s", "images/hour", "errors"], rows)


def show_bills(bills: dict[str, Bill]) -> None:
    """Prices of images, in total and by rate."""
    tariff = next(iter(bills.values())).tariff
    show(
        f"price of 1000 images at {tariff.price_per_hour:g} an hour always on, "
        f"{tariff.pay_per_use_price_per_hour:g} an hour of use",
        ["", "images/hour", "always on, full", "per use, warm", "per use, cold", "break-even/hour"],
        [
            [
                name,
                f"{bill.service.images_per_hour:.0f}",
                f"{bill.always_on_at_full_use:.3g}",
                f"{bill.pay_per_use_warm:.3g}",
                f"{bill.pay_per_use_cold:.3g}",
                _break_even(bill),
            ]
            for name, bill in bills.items()
        ],
    )
    show(
        f"price of 1000 images by rate; a machine is kept {tariff.keep_warm_s:g} s after use, "
        f"use is billed per started {tariff.billing_step_ms:g} ms",
        ["", "images/hour", "machines", "always on", "cold starts", "per use"],
        [
            [
                name if rate is bill.rates[0] else "",
                f"{rate.images_per_hour:g}",
                str(rate.num_machines),
                f"{rate.always_on:.3g}",
                f"{rate.cold_share:.1%}",
                f"{rate.pay_per_use:.3g}",
            ]
            for name, bill in bills.items()
            for rate in bill.rates
        ],
    )


def _break_even(bill: Bill) -> str:
    rate = bill.break_even_images_per_hour
    return "never" if rate is None else f"{rate:.0f}"
