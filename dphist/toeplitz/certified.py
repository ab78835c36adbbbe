"""Bounds of powers and roots, each rounded to the side that its name says.

No floating-point number takes part.
"""

from fractions import Fraction
from math import isqrt

_POWER_BITS = 256
_ROOT_BITS = 96


def power_floor(base: Fraction, exponent: int) -> Fraction:
    """Return a lower bound of base^exponent: every product is rounded down to units of 2^-256.

    Args: base in [0, 1]; exponent at least 0.
    """
    one = 1 << _POWER_BITS
    result, square = one, (base.numerator << _POWER_BITS) // base.denominator
    while exponent:
        if exponent & 1:
            result = result * square >> _POWER_BITS
        square = square * square >> _POWER_BITS
        exponent >>= 1
    return Fraction(result, one)


def power_ceiling(base: Fraction, exponent: int) -> Fraction:
    """Return an upper bound of base^exponent: as ``power_floor``, but rounded up."""
    one = 1 << _POWER_BITS
    result, square = one, -((-base.numerator << _POWER_BITS) // base.denominator)
    while exponent:
        if exponent & 1:
            result = -(-result * square >> _POWER_BITS)
        square = -(-square * square >> _POWER_BITS)
        exponent >>= 1
    return Fraction(result, one)


def root_ceiling(number: Fraction) -> Fraction:
    """Return an upper bound of the square root of a number of at least 0, in units of 2^-96.

    >>> root_ceiling(Fraction(9, 4))
    Fraction(3, 2)
    """
    scaled = -((-number.numerator << 2 * _ROOT_BITS) // number.denominator)
    root = isqrt(scaled)
    return Fraction(root + (root * root < scaled), 1 << _ROOT_BITS)


def ceiling_of(number: Fraction, bits: int) -> Fraction:
    """Return the least multiple of 2^-bits that is not below the number."""
    return Fraction(-((-number.numerator << bits) // number.denominator), 1 << bits)
