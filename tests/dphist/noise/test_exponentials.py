"""Bounds of exponentials against decimal arithmetic of 250 digits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from dphist.noise.exponentials import exp_bounds
from tests.dphist.noise.decimals import DIGITS, exp_of


@given(st.fractions(0, 400), st.integers(0, 500))
@example(Fraction(0), 64)
@example(Fraction(1, 2**52), 256)
@example(Fraction(10**9), 64)
@example(Fraction(64), 64)
@example(Fraction(2**70, 2**70 + 1), 512)
def test_the_exponential_lies_between_close_bounds(x: Fraction, bits: int) -> None:
    lower, upper = exp_bounds(x, bits)
    with localcontext(DIGITS):
        exact = exp_of(x) * Decimal(2) ** bits
        assert lower <= exact <= upper
    assert 0 <= upper - lower <= 2
