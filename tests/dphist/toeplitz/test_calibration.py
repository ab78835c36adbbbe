"""The certified noise: never less than needed, by enumerated discrete laws and by scipy's normal law."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr

from dphist.toeplitz.calibration import ROUNDING_ETA, certifies, gaussian_delta, least_steps, mu_of
from tests.dphist.toeplitz.algebra import canonical, exact_delta

FINE = Fraction(1, 2**24)


@pytest.mark.parametrize(("delta", "squared"), [("1e-6", 17.848), ("1e-9", 30.198)])
def test_noise_is_that_of_the_exact_gaussian_curve(delta: str, squared: float) -> None:
    steps = least_steps(Fraction(1), FINE, 2**20, Fraction(1), Fraction(delta))
    assert round(float((steps * FINE) ** 2), 3) == squared


@given(st.floats(0.01, 20), st.floats(0, 30))
def test_curve_agrees_with_floats(mu: float, epsilon: float) -> None:
    far, near = -epsilon / mu - mu / 2, mu / 2 - epsilon / mu
    expected = math.exp(log_ndtr(near)) - math.exp(epsilon + log_ndtr(far))
    found = float(gaussian_delta(Fraction(mu), Fraction(epsilon)))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("shift", [(1,), (5,), (1, 1), (2, 1), (3, 2, 2)], ids=str)
@pytest.mark.parametrize("steps", [3, 4, 10, 20])
@pytest.mark.parametrize("epsilon", ["0.1", "1", "4"])
def test_discrete_noise_loses_no_more_than_stated(shift: tuple[int, ...], steps: int, epsilon: str) -> None:
    norm = Fraction(math.isqrt(10**12 * sum(size * size for size in shift)) + 1, 10**6)
    stated = gaussian_delta(mu_of(norm, steps, Fraction(1)), Fraction(epsilon))
    exact = exact_delta(canonical(shift), steps, Fraction(epsilon))
    assert exact <= float(stated)
    # Discrete noise of 20 steps is hardly worse than continuous noise: the bound is close to it.
    if steps == 20 and exact > 1e-9:
        assert float(stated) < 1.2 * exact


@pytest.mark.parametrize(
    ("epsilon", "delta"), [("0.1", "1e-9"), ("1", "1e-6"), ("8", "1e-5"), ("1e9", "1e-6")]
)
def test_one_step_less_is_refused(epsilon: str, delta: str) -> None:
    budget = Fraction(3, 2), FINE, 1000, Fraction(epsilon), Fraction(delta)
    steps = least_steps(budget[0], *budget[1:])
    assert certifies(budget[0], steps, *budget[1:])
    assert not certifies(budget[0], steps - 1, *budget[1:])


def test_every_value_is_charged_for_being_discrete() -> None:
    eta = 2 * sum(math.exp(-8 * math.pi**2 * n * n) for n in (1, 2))
    assert eta < ROUNDING_ETA < 1.1 * eta
    # With so many values that the charge reaches epsilon, no noise is enough.
    assert not certifies(Fraction(1), 10**9, FINE, 10**34, Fraction(1), Fraction(1, 2))
    assert certifies(Fraction(1), 10**9, FINE, 10**30, Fraction(1), Fraction(1, 2))


def test_noise_below_three_steps_is_refused() -> None:
    assert not certifies(Fraction(1, 10**9), 2, Fraction(1), 1, Fraction(1), Fraction(1, 2))
    with pytest.raises(ValueError, match="at least 3"):
        mu_of(Fraction(1), 2, Fraction(1))
