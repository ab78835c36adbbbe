"""Bounds of the normal law against a series in decimal arithmetic of 250 digits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dphist.composition.curve import normal_bounds
from tests.dphist.noise.decimals import DIGITS, exp_of


def pi() -> Decimal:
    """Return pi by Machin's formula."""
    return 4 * (4 * _arctan_of_inverse(5) - _arctan_of_inverse(239))


def _arctan_of_inverse(number: int) -> Decimal:
    power = total = Decimal(1) / number
    for n in range(1, 200):
        power /= -number * number
        total += power / (2 * n + 1)
    return total


def normal_law(x: Fraction) -> Decimal:
    """Return Phi(x) by the alternating series, off by less than 10^-100 for |x| below 20."""
    with localcontext(DIGITS):
        value = Decimal(x.numerator) / Decimal(x.denominator)
        term = total = value
        for n in range(1, 900):
            term *= -value * value / (2 * n)
            total += term / (2 * n + 1)
        return Decimal("0.5") + total / (2 * pi()).sqrt()


@given(st.fractions(-15, 15), st.integers(1, 250))
@example(Fraction(0), 96)
@example(Fraction(-1, 2**80), 128)
def test_the_normal_law_lies_between_close_bounds(x: Fraction, bits: int) -> None:
    lower, upper = normal_bounds(x, bits)
    with localcontext(DIGITS):
        assert lower <= normal_law(x) * Decimal(2) ** bits <= upper
    assert 0 <= upper - lower <= 2


@pytest.mark.parametrize("x", [15, 40, 10**6])
def test_far_tails_are_bounded_by_the_exponential(x: int) -> None:
    lower, upper = normal_bounds(Fraction(-x), 64)
    assert (lower, upper) == (0, 1)
    with localcontext(DIGITS):
        assert exp_of(Fraction(x * x, 2)) / 2 < Decimal(2) ** -64
