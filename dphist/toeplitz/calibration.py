"""What Gaussian noise costs, as (epsilon, delta): certified bounds in whole numbers, and the least noise.

A mechanism is *mu-Gaussian* if telling two neighbours apart is no easier than telling N(0, 1) from N(mu, 1).
Its exact curve is delta(epsilon) = Q(epsilon/mu - mu/2) - e^epsilon Q(epsilon/mu + mu/2), where Q(z) is the
probability that a standard normal variable exceeds z. Every number that is returned is rounded to the safe
side; no floating-point number takes part.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt

from dphist.noise.exponentials import exp_bounds
from dphist.toeplitz.certified import pi_bounds, root_ceiling

# Bits beyond those that delta needs: its relative error is then below 2^-60.
_GUARD_BITS = 96
# Beyond this exponent only the first part of the curve is used, which is a bound by itself.
_LARGEST_EPSILON = 400
# Beyond this, Q(z) is below 2^-9,000: the bound exp(-z^2 / 2) / 2 is used.
_LARGEST_ARGUMENT = 112
# The law of a Gaussian variable rounded on the lattice is within a factor (1 + eta) / (1 - eta) of the
# discrete Gaussian law; docs/decisions/0036 has the proof. 2 exp(-8 pi^2) / (1 - exp(-8 pi^2)) = 1.03e-34.
ROUNDING_ETA = Fraction(11, 10**35)
_MU_BITS = 64


def tail_bounds(z: Fraction, bits: int) -> tuple[int, int]:
    """Return whole numbers between which 2^bits * Q(z) lies, Q(z) = P(a standard normal variable > z).

    For z >= 0, Q(z) = 1/2 - phi(z) (z + z^3/3 + z^5/(3 5) + ...), all of whose terms are positive.

    Guarantee: lower <= 2^bits Q(z) <= upper.
    Cost: below a millisecond for |z| < 10 and 200 bits.

    >>> tail_bounds(Fraction(0), 10), tail_bounds(Fraction(1), 20)
    ((512, 512), (166362, 166364))
    """
    if z < 0:
        lower, upper = tail_bounds(-z, bits)
        return (1 << bits) - upper, (1 << bits) - lower
    if z == 0:
        return 1 << bits >> 1, (1 << bits) + 1 >> 1
    square = z * z
    if z > _LARGEST_ARGUMENT:
        return 0, exp_bounds(square / 2, bits)[1]
    precision = bits + 32
    low_sum, high_sum = _series_bounds(z, precision)
    # The sum reaches exp(z^2 / 2), so the density needs as many bits more.
    extra = int(square) + 8
    low_exp, high_exp = exp_bounds(square / 2, precision + extra)
    low_root, high_root = _root_of_two_pi(precision)
    low_part = low_sum * low_exp // high_root >> extra
    high_part = -(-high_sum * high_exp // low_root >> extra)
    half = 1 << precision - 1
    return max(0, half - high_part) >> 32, -(-(half - low_part) >> 32)


def gaussian_delta_bounds(mu: Fraction, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Return a lower and an upper bound of delta(epsilon) of a mu-Gaussian mechanism.

    Args: mu at least 0; epsilon at least 0.
    Guarantee: exact bounds. For epsilon up to 400 they differ by less than a part of 2^60 where delta is
        above 2^-1000.
    """
    if mu < 0 or epsilon < 0:
        raise ValueError(f"mu {mu} and epsilon {epsilon} must be at least 0")
    if mu == 0:
        return Fraction(0), Fraction(0)
    ratio = epsilon / mu
    bits = 2 * _GUARD_BITS
    while True:
        lower, upper = _curve(ratio - mu / 2, ratio + mu / 2, epsilon, bits)
        if bits > 1200 or (upper - lower) << 60 <= upper:
            return Fraction(max(0, lower), 1 << bits), Fraction(upper, 1 << bits)
        bits *= 2


def gaussian_delta(mu: Fraction, epsilon: Fraction) -> Fraction:
    """Return an upper bound of the delta that a mu-Gaussian mechanism has at epsilon.

    >>> float(gaussian_delta(Fraction(1), Fraction(1)))
    0.12693673750664394
    """
    return gaussian_delta_bounds(mu, epsilon)[1]


def gaussian_epsilon(mu: Fraction, delta: Fraction) -> Fraction:
    """Return an upper bound of the least epsilon at which a mu-Gaussian mechanism has at most this delta.

    Guarantee: delta(result) <= delta, and the result is above the least such epsilon by less than 2^-20 or,
        if that is more, by less than one part in 2^30.
    Raises: ValueError unless 0 < delta < 1.

    >>> round(float(gaussian_epsilon(Fraction(1), Fraction(1, 10**6))), 4)
    4.8866
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta: {delta} is outside (0, 1)")
    scale = 1 << 20
    if gaussian_delta(mu, Fraction(0)) <= delta:
        return Fraction(0)
    high = 1
    while gaussian_delta(mu, Fraction(high, scale)) > delta:
        high *= 2
    low = high // 2
    while high - low > max(1, high >> 31):
        middle = (low + high) // 2
        low, high = (low, middle) if gaussian_delta(mu, Fraction(middle, scale)) <= delta else (middle, high)
    return Fraction(high, scale)


def mu_of(sensitivity: Fraction, steps: int, step: Fraction) -> Fraction:
    """Return the parameter mu, rounded up, of discrete Gaussian noise on multiples of a step.

    It is sensitivity / sqrt(sigma^2 - 4 step^2) for sigma = steps * step: the noise is at least as good as
    continuous noise of that variance, up to the factor that ``certifies`` charges.

    Raises: ValueError for fewer than 3 steps.
    """
    if steps < 3:
        raise ValueError(f"steps: the noise is {steps} lattice steps wide; at least 3 are needed")
    ratio = sensitivity / step
    square = ratio * ratio / (steps * steps - 4)
    return root_ceiling(square)


def certifies(
    sensitivity: Fraction, steps: int, step: Fraction, coordinates: int, epsilon: Fraction, delta: Fraction
) -> bool:
    """Return whether discrete Gaussian noise of sigma = steps * step is certified (epsilon, delta)-DP.

    Args: the L2 sensitivity of one epoch's values, as an upper bound; how many values are released.
    Guarantee: true only if it is. The factor between the discrete law and the rounded continuous one is
        charged for every value: 6 N eta in epsilon and exp(3 N eta) in delta.
    """
    charge = coordinates * ROUNDING_ETA
    if steps < 3 or 6 * charge >= epsilon or 3 * charge > Fraction(1, 4):
        return False
    # exp(-x) >= 1 - x.
    return gaussian_delta(mu_of(sensitivity, steps, step), epsilon - 6 * charge) <= delta * (1 - 3 * charge)


@lru_cache(maxsize=256)
def least_steps(
    sensitivity: Fraction, step: Fraction, coordinates: int, epsilon: Fraction, delta: Fraction
) -> int:
    """Return the least sigma, in lattice steps, that ``certifies`` accepts.

    Raises: ValueError if no sigma below 2^60 steps is enough.
    Cost: some 10 milliseconds.

    >>> step = Fraction(1, 2**24)
    >>> sigma = least_steps(Fraction(1), step, 1, Fraction(1), Fraction(1, 10**6)) * step
    >>> round(float(sigma**2), 3)
    17.848
    """
    # Noise as wide as the sensitivity is a good first guess: the cost of a check grows far from it.
    low = high = max(3, int(sensitivity / step))
    while not certifies(sensitivity, high, step, coordinates, epsilon, delta):
        low, high = high, 2 * high
        if high > 1 << 60:
            raise ValueError("epsilon: no noise on this lattice is enough; choose a larger epsilon or delta")
    while certifies(sensitivity, low, step, coordinates, epsilon, delta):
        low, high = low // 2, low
    while high - low > 1:
        middle = (low + high) // 2
        if certifies(sensitivity, middle, step, coordinates, epsilon, delta):
            high = middle
        else:
            low = middle
    return high


def _curve(near: Fraction, far: Fraction, epsilon: Fraction, bits: int) -> tuple[int, int]:
    """Return bounds of Q(near) - e^epsilon Q(far), in units of 2^-bits."""
    low_near, high_near = tail_bounds(near, bits)
    if epsilon > _LARGEST_EPSILON:
        return 0, high_near
    extra = 2 * int(epsilon) + 8
    low_far, high_far = tail_bounds(far, bits + extra)
    low_exp, high_exp = exp_bounds(epsilon, bits + 2 * extra)
    # e^epsilon Q(far) in units of 2^-bits is the quotient of both numbers.
    low_product = (low_far << bits + extra) // high_exp
    high_product = -((-high_far << bits + extra) // low_exp)
    return low_near - high_product, high_near - low_product


def _series_bounds(z: Fraction, precision: int) -> tuple[int, int]:
    """Return bounds of z + z^3/3 + z^5/(3 5) + ..., in units of 2^-precision, for z > 0."""
    square = z * z
    working = precision + 64
    low = (z.numerator << working) // z.denominator
    high = low + 1
    low_square = (square.numerator << working) // square.denominator
    high_square = low_square + 1
    low_sum, high_sum, odd = low, high, 1
    last = int(2 * square) + 1
    while True:
        odd += 2
        low = (low * low_square >> working) // odd
        high = _divided_up(high * high_square, odd << working)
        low_sum += low
        high_sum += high
        # From here each term is less than half of the one before, so the rest is less than the last term.
        if odd > last and high <= 1 << 32:
            return low_sum >> 64, -(-(high_sum + high) >> 64)


def _divided_up(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


@lru_cache(maxsize=16)
def _root_of_two_pi(bits: int) -> tuple[int, int]:
    """Return whole numbers between which 2^bits * sqrt(2 pi) lies."""
    lower, upper = pi_bounds(2 * bits + 1)
    return isqrt(lower), isqrt(upper) + 1
