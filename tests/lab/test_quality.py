"""Measures of quality, on arrays whose quality is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.lab.quality import (
    agreement,
    compare_logits,
    correlation,
    decibels,
    kl_nats,
    log_softmax,
    logits_snr_db,
    noise_ratio,
    psnr_db,
)

RNG = np.random.default_rng(0)


def test_a_tenth_of_noise_is_20_db() -> None:
    wanted = RNG.normal(size=(1, 50, 8)).astype(np.float32)
    assert decibels(noise_ratio(wanted * 1.1, wanted)) == pytest.approx(20, abs=0.01)
    assert decibels(noise_ratio(wanted, wanted)) == pytest.approx(120)


def test_each_tensor_is_weighed_by_its_own_signal() -> None:
    wanted = RNG.normal(size=(2, 50, 8)).astype(np.float32)
    wanted[1] *= 1000
    found = wanted.copy()
    found[0] *= 1.1  # ratio 0.01; the other tensor has no noise
    assert noise_ratio(found, wanted) == pytest.approx(0.005, rel=1e-3)


def test_a_tensor_of_zeros_has_a_finite_ratio() -> None:
    zeros = np.zeros((1, 4, 4), np.float32)
    assert noise_ratio(zeros, zeros) == 0
    assert np.isfinite(decibels(noise_ratio(zeros + 1, zeros)))


def test_divergence_is_what_its_definition_says() -> None:
    wanted, found = RNG.normal(size=(2, 3, 10)).astype(np.float32)
    p, q = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (wanted, found))
    assert kl_nats(found, wanted) == pytest.approx((p * np.log(p / q)).sum(-1), rel=1e-5)
    assert kl_nats(wanted, wanted) == pytest.approx(np.zeros(3), abs=1e-12)
    assert (kl_nats(found, wanted) > 0).all()


@given(shift=st.floats(-50, 50))
def test_a_constant_added_to_all_logits_changes_nothing(shift: float) -> None:
    wanted, found = np.random.default_rng(1).normal(size=(2, 3, 10)).astype(np.float32)
    shifted = (found + shift).astype(np.float32)
    assert kl_nats(shifted, wanted) == pytest.approx(kl_nats(found, wanted), abs=1e-4)
    assert logits_snr_db(shifted, wanted) == pytest.approx(logits_snr_db(found, wanted), abs=1e-2)


def test_large_logits_do_not_overflow() -> None:
    values = log_softmax(np.array([[1e4, 0, -1e4]], np.float32))
    assert values[0, 0] == 0
    assert np.isfinite(values).all()


def test_logits_of_several_tokens() -> None:
    reference = np.log(np.array([[0.5, 0.4, 0.1], [0.5, 0.4, 0.1], [0.8, 0.1, 0.1]], np.float32))
    found = np.log(np.array([[0.4, 0.5, 0.1], [0.3, 0.2, 0.5], [0.9, 0.05, 0.05]], np.float32))
    quality = compare_logits(found, reference)
    assert (quality.num_tokens, quality.num_agreeing) == (3, 1)
    assert quality.num_clear == 1  # 0.1 instead of 0.5; 0.4 instead of 0.5 is nearly as likely
    assert quality.top1_agreement == pytest.approx(1 / 3)
    assert quality.kl_nats == pytest.approx(kl_nats(found, reference).mean())
    assert quality.snr_db == logits_snr_db(found, reference)
    assert compare_logits(reference, reference).snr_db == pytest.approx(120)


def test_correlation_ignores_offset_and_scale() -> None:
    logits = RNG.normal(size=50).astype(np.float32)
    assert correlation(3 * logits + 7, logits) == pytest.approx(1)
    assert correlation(-logits, logits) == pytest.approx(-1)


def test_error_of_pictures_in_decibels() -> None:
    assert psnr_db(255**2 / 100) == pytest.approx(20)
    assert psnr_db(0.0) is None


@pytest.mark.parametrize(
    ("own", "reference", "share"),
    [
        ((1, 2, 3), (1, 2, 3), 1.0),
        ((1, 2, 9, 4), (1, 2, 3, 4), 0.5),
        ((1, 2), (1, 2, 3, 4), 0.5),
        ((9, 2, 3), (1, 2, 3), 0.0),
        ((), (), 0.0),
    ],
)
def test_agreement(own: tuple[int, ...], reference: tuple[int, ...], share: float) -> None:
    assert agreement(own, reference) == agreement(reference, own) == share
