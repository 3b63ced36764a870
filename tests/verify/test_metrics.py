import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.verify.metrics import decibels, kl_nats, log_softmax, logits_snr_db, noise_ratio

RNG = np.random.default_rng(0)


def test_a_tenth_of_noise_is_20_db() -> None:
    wanted = RNG.normal(size=(1, 50, 8)).astype(np.float32)
    assert decibels(noise_ratio(wanted * 1.1, wanted)) == pytest.approx(20, abs=0.01)
    assert decibels(noise_ratio(wanted, wanted)) == pytest.approx(120)


def test_each_tensor_is_weighed_by_its_own_signal() -> None:
    wanted = RNG.normal(size=(2, 50, 8)).astype(np.float32)
    wanted[1] *= 1000
    found = wanted.copy()
    found[0] *= 1.1  # ratio 0.01, where the other has none
    assert noise_ratio(found, wanted) == pytest.approx(0.005, rel=1e-3)


def test_a_tensor_of_zeros_is_no_trouble() -> None:
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
def test_what_no_probability_depends_on_counts_for_nothing(shift: float) -> None:
    wanted, found = np.random.default_rng(1).normal(size=(2, 3, 10)).astype(np.float32)
    shifted = (found + shift).astype(np.float32)
    assert kl_nats(shifted, wanted) == pytest.approx(kl_nats(found, wanted), abs=1e-4)
    assert logits_snr_db(shifted, wanted) == pytest.approx(logits_snr_db(found, wanted), abs=1e-2)


def test_large_logits_do_not_overflow() -> None:
    values = log_softmax(np.array([[1e4, 0, -1e4]], np.float32))
    assert values[0, 0] == 0
    assert np.isfinite(values).all()
