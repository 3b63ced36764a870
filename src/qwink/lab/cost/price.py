"""Prices of images: on a machine that is always on, and with payment per use.

Prices are in the tariff's currency. Rates are images per hour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qwink.errors import OptionError

HOUR_S, HOUR_MS = 3600, 3_600_000
DEFAULT_RATES = (1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True, slots=True)
class PricedService:
    """Times and rate of one machine that answers questions about images.

    `request_ms` is the time of a single request on a warm machine, `cold_extra_ms` the additional
    time on a machine just started, `images_per_hour` the highest rate.
    """

    request_ms: float
    images_per_hour: float
    cold_extra_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices and rules of billing.

    Pay per use bills the time of each request, cold start included, rounded up to whole steps. An
    idle machine is free and is stopped after `keep_warm_s` without requests.
    """

    price_per_hour: float
    pay_per_use_price_per_hour: float
    billing_step_ms: float = 1.0
    keep_warm_s: float = 300.0

    def __post_init__(self) -> None:
        """Raises OptionError for a number out of range."""
        for name, value, positive in (
            ("price_per_hour", self.price_per_hour, True),
            ("pay_per_use_price_per_hour", self.pay_per_use_price_per_hour, True),
            ("billing_step_ms", self.billing_step_ms, True),
            ("keep_warm_s", self.keep_warm_s, False),
        ):
            if not math.isfinite(value) or value < 0 or (positive and value == 0):
                least = "above 0" if positive else "0 or more"
                raise OptionError(f"{name} is {value:g}; it must be {least}")


@dataclass(frozen=True, slots=True)
class RatePrice:
    """Prices of 1000 images at a rate. The share `cold_share` of requests starts a machine."""

    images_per_hour: float
    num_machines: int  # always on
    always_on: float
    cold_share: float
    pay_per_use: float


@dataclass(frozen=True, slots=True)
class Bill:
    """Prices of 1000 images, and the rate above which a machine that is always on costs less.

    `break_even_images_per_hour` is None where paying per use is cheaper up to the machine's limit.
    """

    tariff: Tariff
    service: PricedService
    always_on_at_full_use: float
    pay_per_use_warm: float
    pay_per_use_cold: float
    break_even_images_per_hour: float | None
    rates: tuple[RatePrice, ...]


def make_bill(
    service: PricedService, tariff: Tariff, rates: tuple[float, ...] = DEFAULT_RATES
) -> Bill:
    """Raises OptionError for a rate that is not above 0."""
    for rate in rates:
        if not (math.isfinite(rate) and rate > 0):
            raise OptionError(f"a rate is {rate:g} images per hour; it must be above 0")
    return Bill(
        tariff,
        service,
        1000 * tariff.price_per_hour / service.images_per_hour,
        pay_per_use_price(service, tariff, 0.0),
        pay_per_use_price(service, tariff, 1.0),
        break_even(service, tariff),
        tuple(_at_rate(service, tariff, rate) for rate in rates),
    )


def always_on_price(service: PricedService, tariff: Tariff, images_per_hour: float) -> float:
    """The price of 1000 images, on as many machines as the rate needs."""
    machines = num_machines(service, images_per_hour)
    return 1000 * machines * tariff.price_per_hour / images_per_hour


def num_machines(service: PricedService, images_per_hour: float) -> int:
    return max(1, math.ceil(images_per_hour / service.images_per_hour))


def cold_share(tariff: Tariff, images_per_hour: float) -> float:
    """The share of requests that come after a pause longer than `keep_warm_s`.

    With independent arrivals (Poisson) the pauses are distributed exponentially.
    """
    return math.exp(-images_per_hour * tariff.keep_warm_s / HOUR_S)


def pay_per_use_price(service: PricedService, tariff: Tariff, cold: float) -> float:
    """The price of 1000 images, of which the share `cold` starts a machine."""
    warm_ms = _billed_ms(service.request_ms, tariff)
    cold_ms = _billed_ms(service.request_ms + service.cold_extra_ms, tariff)
    mean_ms = (1 - cold) * warm_ms + cold * cold_ms
    return 1000 * tariff.pay_per_use_price_per_hour * mean_ms / HOUR_MS


def break_even(service: PricedService, tariff: Tariff) -> float | None:
    """The rate above which one machine that is always on costs less than paying per use.

    It is the last crossing below the machine's highest rate: cold starts can make paying per use
    more expensive at some low rates, too. None if paying per use is cheaper at the highest rate.
    """
    rates = np.geomspace(service.images_per_hour / 1e6, service.images_per_hour, 10_000)
    gains = [
        pay_per_use_price(service, tariff, cold_share(tariff, rate))
        - 1000 * tariff.price_per_hour / rate
        for rate in rates
    ]
    if gains[-1] <= 0:
        return None
    losing = [index for index, gain in enumerate(gains) if gain <= 0]
    if not losing:
        return float(rates[0])
    before = losing[-1]
    share = -gains[before] / (gains[before + 1] - gains[before])
    return float(rates[before] + share * (rates[before + 1] - rates[before]))


def _at_rate(service: PricedService, tariff: Tariff, rate: float) -> RatePrice:
    cold = cold_share(tariff, rate)
    return RatePrice(
        rate,
        num_machines(service, rate),
        always_on_price(service, tariff, rate),
        cold,
        pay_per_use_price(service, tariff, cold),
    )


def _billed_ms(milliseconds: float, tariff: Tariff) -> float:
    return math.ceil(milliseconds / tariff.billing_step_ms) * tariff.billing_step_ms
