"""Bounds of powers, roots and exponentials, each rounded to the side that its name says.

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


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Return whole numbers between which 2^bits * exp(-x) lies.

    Args: x, at least 0; bits, at least 0.
    Guarantee: lower <= 2^bits * exp(-x) <= upper. They are at most 2 apart.
    Cost: some 20 microseconds for 256 bits.

    >>> exp_bounds(Fraction(1), 20)
    (385749, 385750)
    """
    if x > bits:
        return 0, 1  # exp(-x) < 2^-x
    halvings = int(x).bit_length() + 8
    precision = bits + halvings + 24
    part = (x.numerator << precision) // (x.denominator << halvings)  # of x / 2^halvings, below 2^-8
    # The alternating series of exp(-part). A term is rounded down twice, and inherits less than 2^-8 of the
    # error of the term before: each is off by less than 3. What follows the last term, and what ``part``
    # was rounded by, are less than 6 together.
    total = term = 1 << precision
    terms = 0
    while term:
        terms += 1
        term = (term * part >> precision) // terms
        total += -term if terms % 2 else term
    margin = 3 * terms + 6
    lower, upper = total - margin, min(total + margin, 1 << precision)
    for _ in range(halvings):
        lower = lower * lower >> precision
        upper = -(-upper * upper >> precision)
    extra = precision - bits
    return lower >> extra, -(-upper >> extra)
