"""Prices, against figures computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.errors import OptionError
from qwink.lab.cost.price import (
    PricedService,
    Tariff,
    always_on_price,
    break_even,
    cold_share,
    make_bill,
    pay_per_use_price,
)

# 3.6 s an image, so 1000 an hour; 36 s on a machine just started.
SERVICE = PricedService(request_ms=3600, images_per_hour=1000, cold_extra_ms=32_400)


def tariff(use: float = 4.0, step_ms: float = 1.0, keep_s: float = 0.0) -> Tariff:
    return Tariff(2.0, use, step_ms, keep_s)


def test_always_on() -> None:
    assert always_on_price(SERVICE, tariff(), 1000) == 2
    assert always_on_price(SERVICE, tariff(), 10) == 200
    assert always_on_price(SERVICE, tariff(), 1001) == pytest.approx(4, rel=0.001)  # two machines


def test_pay_per_use() -> None:
    assert pay_per_use_price(SERVICE, tariff(), 0.0) == pytest.approx(4)
    assert pay_per_use_price(SERVICE, tariff(), 1.0) == pytest.approx(40)
    assert pay_per_use_price(SERVICE, tariff(), 0.5) == pytest.approx(22)


def test_started_steps_are_billed() -> None:
    # 3.6 s become 4 s; 36 s stay.
    assert pay_per_use_price(SERVICE, tariff(step_ms=1000), 0.0) == pytest.approx(4 / 0.9)
    assert pay_per_use_price(SERVICE, tariff(step_ms=1000), 1.0) == pytest.approx(40)


def test_share_of_cold_starts() -> None:
    assert cold_share(tariff(keep_s=0), 10) == 1
    assert cold_share(tariff(keep_s=360), 10) == pytest.approx(math.exp(-1))
    assert cold_share(tariff(keep_s=360), 10_000) == pytest.approx(0)


def test_break_even_without_cold_starts() -> None:
    # 4 per 1000 images against 2 an hour.
    warm = PricedService(3600, 1000)
    assert break_even(warm, tariff()) == pytest.approx(500, rel=0.001)


def test_break_even_with_every_start_cold() -> None:
    # 40 per 1000 images against 2 an hour.
    assert break_even(SERVICE, tariff(keep_s=0)) == pytest.approx(50, rel=0.001)


def test_no_break_even_where_use_is_cheap() -> None:
    assert break_even(PricedService(3600, 1000), tariff(use=1.9)) is None


def test_the_last_crossing_counts() -> None:
    # Cold starts cost so much that paying per use costs more at 30 an hour, and less at 400.
    service = PricedService(request_ms=360, images_per_hour=10_000, cold_extra_ms=720_000)
    plan = Tariff(2.0, 4.0, keep_warm_s=120)

    def gain(rate: float) -> float:
        per_use = pay_per_use_price(service, plan, cold_share(plan, rate))
        return per_use - always_on_price(service, plan, rate)

    assert gain(1) < 0 < gain(30)
    assert gain(400) < 0
    assert break_even(service, plan) == pytest.approx(5000, rel=0.001)


@given(
    request=st.floats(1, 1e5),
    extra=st.floats(0, 1e6),
    use=st.floats(0.01, 100),
    keep=st.floats(0, 3600),
)
def test_prices_meet_at_the_break_even(
    request: float, extra: float, use: float, keep: float
) -> None:
    service, plan = (
        PricedService(request, 3.6e6 / request, extra),
        Tariff(1.0, use, keep_warm_s=keep),
    )
    rate = break_even(service, plan)
    if rate is None:
        return
    per_use = pay_per_use_price(service, plan, cold_share(plan, rate))
    lowest = service.images_per_hour / 1e6
    if rate > lowest * 1.001:
        assert per_use == pytest.approx(always_on_price(service, plan, rate), rel=0.01)


def test_bill() -> None:
    bill = make_bill(SERVICE, tariff(keep_s=360), rates=(10.0, 2500.0))
    assert bill.always_on_at_full_use == 2
    assert bill.pay_per_use_warm == pytest.approx(4)
    assert bill.pay_per_use_cold == pytest.approx(40)
    slow, fast = bill.rates
    assert (slow.num_machines, slow.always_on) == (1, 200)
    assert slow.pay_per_use == pytest.approx(4 + 36 * math.exp(-1))
    assert fast.num_machines == 3


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ((0.0, 1.0), "price_per_hour"),
        ((-1.0, 1.0), "price_per_hour"),
        ((1.0, math.nan), "pay_per_use_price_per_hour"),
        ((1.0, 1.0, 0.0), "billing_step_ms"),
        ((1.0, 1.0, 1.0, -1.0), "keep_warm_s"),
    ],
)
def test_senseless_tariffs(values: tuple[float, ...], name: str) -> None:
    with pytest.raises(OptionError, match=name):
        Tariff(*values)


def test_senseless_rates() -> None:
    with pytest.raises(OptionError, match="rate"):
        make_bill(SERVICE, tariff(), rates=(0.0,))
