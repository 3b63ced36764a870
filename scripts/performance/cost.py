"""Prices of images, in hours of the measured machine."""

from __future__ import annotations

from qwink.lab.cost.price import HOUR_MS, Tariff, break_even
from qwink.lab.cost.services import services
from qwink.lab.record import parse
from scripts.performance.layout import Results, Section, table

SIZE, ANSWER_TOKENS = "448x448", 64
FACTORS = (2.0, 4.0)
TEXT = f"""## Cost

One picture at {SIZE} (nano: at its largest size) and an answer of {ANSWER_TOKENS} tokens, one after
the other, from the stages above. Multiply machine-hours by your price of an hour; `qwink bench
cost` does so for your own measurement. Break-even: above this number of images an hour, a machine
that is always on costs less than one paid per use, if an hour of use costs the given multiple of an
hour of the machine, requests are independent of each other, idle machines are free and stopped
after five minutes, and a cold start is billed.
"""


def section(results: Results) -> Section | None:
    rows = []
    for name, document in results.family("stages").items():
        found = services(parse(document), ANSWER_TOKENS)
        service = found.get(SIZE) or list(found.values())[-1]
        rows.append(
            [
                name,
                f"{service.request_ms / 1e3:.2f}",
                f"{service.images_per_hour:.0f}",
                f"{1000 * service.request_ms / HOUR_MS:.3g}",
                f"{service.cold_extra_ms / 1e3:.1f}",
            ]
        )
        for factor in FACTORS:
            rate = break_even(service, Tariff(1.0, factor))
            rows[-1].append("never" if rate is None else f"{rate:.0f}")
    if not rows:
        return None
    head = ["", "s per image", "images per hour", "machine-hours per 1000", "cold start s"]
    head += [f"break-even at {factor:g}×" for factor in FACTORS]
    return Section(f"{TEXT}\n{table(head, rows)}")
