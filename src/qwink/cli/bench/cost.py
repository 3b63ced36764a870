"""`qwink bench cost`: prices of images, from a result of `bench stages` or `bench load`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qwink.cli.console import remark

if TYPE_CHECKING:
    from qwink.lab.cost.price import Tariff
    from qwink.lab.record import Record


def cost(
    result: Annotated[Path, typer.Argument(help="JSON of qwink bench stages or load.")],
    price_per_hour: Annotated[
        float,
        typer.Option(metavar="P", help="Price of an hour of a machine like the measured one."),
    ],
    pay_per_use_price_per_hour: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Price of an hour of use, where only use is paid; by default the same.",
        ),
    ] = None,
    billing_step_ms: Annotated[
        float, typer.Option(metavar="MS", help="Use is billed in started steps of this length.")
    ] = 1.0,
    keep_warm_s: Annotated[
        float,
        typer.Option(metavar="S", help="A machine is stopped after this time without requests."),
    ] = 300.0,
    rates: Annotated[
        str, typer.Option(metavar="R,...", help="Images per hour to price.")
    ] = "1,10,100,1000",
    answer_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Length of answers; by default as measured."),
    ] = None,
    cold_extra_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            min=0,
            help="Extra time of the first request on a machine that was just started; by default "
            "as measured by bench stages. Add the time that the provider needs to start a machine.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the JSON document there.")
    ] = None,
) -> None:
    """Price 1000 images, always on or per use, and find the rate where the two cost the same.

    Requests are assumed to be independent of each other. Prices are in your currency.

    \b
    Examples:
      qwink bench cost speed.json --price-per-hour 0.08
      qwink bench cost speed.json --price-per-hour 0.08 --pay-per-use-price-per-hour 0.25
    """
    from qwink.cli.bench.output import check_out, finish, numbers
    from qwink.lab.cost.price import Tariff
    from qwink.lab.record import Record, read

    check_out(out)
    use_price = price_per_hour if pay_per_use_price_per_hour is None else pay_per_use_price_per_hour
    tariff = Tariff(price_per_hour, use_price, billing_step_ms, keep_warm_s)
    measured = read(result)
    found = priced(measured, tariff, numbers(rates, "--rates"), answer_tokens, cold_extra_ms)
    finish(Record("cost", measured.facts, {"bills": found}).document(), out)


def priced(
    result: Record[Any],
    tariff: Tariff,
    rates: tuple[int, ...] | None = None,
    answer_tokens: int | None = None,
    cold_extra_ms: float | None = None,
) -> dict[str, Any]:
    """Show the prices of a result's images; returns bills as JSON, by what was measured."""
    from qwink.cli.bench.tables import show_bills
    from qwink.lab.cost.price import DEFAULT_RATES, make_bill
    from qwink.lab.cost.services import services

    if result.kind == "load" and cold_extra_ms is None:
        remark("bench load has no cold starts: add them with --cold-extra-ms")
    wanted = tuple(map(float, rates or DEFAULT_RATES))
    bills = {
        label: make_bill(service, tariff, wanted)
        for label, service in services(result, answer_tokens, cold_extra_ms).items()
    }
    show_bills(bills)
    return {label: asdict(bill) for label, bill in bills.items()}
