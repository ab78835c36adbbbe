"""Exact bounds of powers, roots and normal probabilities, each rounded to a side that the caller names.

No floating-point number takes part. Numbers are fractions, or whole numbers of units of 2^-bits.
"""

from fractions import Fraction
from functools import lru_cache
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


@lru_cache(maxsize=4)
def pi_bounds(bits: int) -> tuple[int, int]:
    """Return whole numbers between which 2^bits * pi lies, by Machin's formula.

    pi = 16 arctan(1/5) - 4 arctan(1/239). Each term of both alternating series is rounded down by less than
    2 units, and the rest after the last term is less than 1 unit.

    >>> pi_bounds(20)[0] <= 3.14159265358979 * 2**20 <= pi_bounds(20)[1]
    True
    """
    extra = bits.bit_length() + 12
    one, total, margin = 1 << bits + extra, 0, 0
    for factor, inverse in ((16, 5), (-4, 239)):
        power, index, series = one // inverse, 0, 0
        while power:
            series += -(power // (2 * index + 1)) if index % 2 else power // (2 * index + 1)
            power //= inverse * inverse
            index += 1
        total += factor * series
        margin += abs(factor) * (2 * index + 2)
    return (total - margin) >> extra, -(-(total + margin) >> extra)
