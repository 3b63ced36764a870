"""Derives request times and rates from results of `bench stages` and `bench load`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qwink.errors import OptionError
from qwink.lab.cost.price import HOUR_MS, HOUR_S, PricedService
from qwink.lab.record import Record


def services(
    result: Record[Any],
    answer_tokens: int | None = None,
    cold_extra_ms: float | None = None,
) -> dict[str, PricedService]:
    """Label → service, one for each size or load that was measured.

    `answer_tokens` extrapolates the answers of stages to that length; `cold_extra_ms` replaces the
    measured value. Raises OptionError for a result of another kind, and for an option that the
    result does not allow.
    """
    try:
        if result.kind == "stages":
            return dict(_of_stages(result.document(), answer_tokens, cold_extra_ms))
        if result.kind == "load":
            return dict([_of_load(result.document(), answer_tokens, cold_extra_ms)])
    except OptionError:
        raise
    except (LookupError, TypeError, ValueError):
        pass
    raise OptionError("not a result of qwink bench stages or load; give the JSON of one")


def _of_stages(
    document: dict[str, Any], answer_tokens: int | None, cold_extra_ms: float | None
) -> Iterator[tuple[str, PricedService]]:
    """Each size with the fastest number of threads, since the whole machine is paid for."""
    for name in [row["size"] for row in document["runs"][0]["sizes"]]:
        found = [
            (_request_ms(row, answer_tokens), run["cold_start"]["extra_ms"])
            for run in document["runs"]
            for row in run["sizes"]
            if row["size"] == name
        ]
        request_ms, extra_ms = min(found)
        extra_ms = extra_ms if cold_extra_ms is None else cold_extra_ms
        yield name, PricedService(request_ms, HOUR_MS / request_ms, max(0.0, extra_ms))


def _request_ms(row: dict[str, Any], answer_tokens: int | None) -> float:
    if answer_tokens is None:
        return float(row["total_ms"]["median"])
    if answer_tokens > 1 and row["token_ms"] is None:
        raise OptionError("the answers had one token; measure with a higher --answer-tokens")
    more = (answer_tokens - 1) * row["token_ms"]["median"] if answer_tokens > 1 else 0
    return float(row["first_token_ms"]["median"]) + more


def _of_load(
    document: dict[str, Any], answer_tokens: int | None, cold_extra_ms: float | None
) -> tuple[str, PricedService]:
    """The rate of the level with most requests a second; the time of the least concurrent level."""
    if answer_tokens is not None:
        raise OptionError(
            "a result of bench load has answers of one length; measure with --max-tokens"
        )
    answered = [level for level in document["levels"] if level["total_ms"] is not None]
    if not answered:
        raise OptionError("no request of this load was answered; there is nothing to price")
    best = max(answered, key=lambda level: float(level["requests_per_s"]))
    alone = min(answered, key=lambda level: int(level["concurrency"]))
    service = PricedService(
        float(alone["total_ms"]["median"]),
        float(best["requests_per_s"]) * HOUR_S,
        cold_extra_ms or 0.0,
    )
    return f"{best['concurrency']} at once", service
