"""Exponentials and the law of a block in 250 decimal digits: an oracle."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache

DIGITS = Context(prec=250)


def exp_of(x: Fraction) -> Decimal:
    """Return exp(-x), off by less than 10^-240 of itself."""
    return DIGITS.exp(-DIGITS.divide(Decimal(x.numerator), Decimal(x.denominator)))


@cache
def geometric_below(step: Fraction, limit: int | None, value: int) -> Decimal:
    """Return P(V < value) for P(V = j) proportional to exp(-j step), below the limit."""
    with localcontext(DIGITS):
        whole = 1 - exp_of(step * limit) if limit else Decimal(1)
        return (1 - exp_of(step * value)) / whole


def value_of(uniform: Fraction, step: Fraction, limit: int | None) -> int:
    """Return the number of cumulative probabilities that are at most the uniform number."""
    with localcontext(DIGITS):
        exact = Decimal(uniform.numerator) / Decimal(uniform.denominator)
    low, high = 0, limit or 1 << 20  # P_low <= exact < P_high
    while high - low > 1:
        middle = (low + high) // 2
        if geometric_below(step, limit, middle) <= exact:
            low = middle
        else:
            high = middle
    return low
