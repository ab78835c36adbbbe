"""The least discrete Gaussian noise for a budget: certified, in whole numbers.

A mechanism is *mu-Gaussian* if telling two neighbours apart is no easier than telling N(0, 1) from N(mu, 1).
Its exact curve is delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), which
``dphist.composition`` bounds from above. Noise on a lattice is charged for not being continuous; the proof is
in docs/decisions/0036-the-approximate-kind.md. No floating-point number takes part.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from dphist.certified import root_ceiling
from dphist.composition.curve import gaussian_delta as _delta_units
from dphist.composition.losses import BITS

# Continuous noise, rounded to the lattice by a discrete Gaussian of two steps, has the law of discrete noise
# up to a factor (1 + eta) / (1 - eta). eta = 2 exp(-8 pi^2) + 2 exp(-32 pi^2) + ... is 1.03e-34.
ROUNDING_ETA = Fraction(11, 10**35)
_MOST_STEPS = 2**60


def gaussian_delta(mu: Fraction, epsilon: Fraction) -> Fraction:
    """Return an upper bound of the delta that a mu-Gaussian mechanism has at epsilon, within 2^-90 of it.

    >>> round(float(gaussian_delta(Fraction(1), Fraction(1))), 12)
    0.126936737507
    """
    return Fraction(_delta_units(epsilon, mu), 1 << BITS)


def mu_of(sensitivity: Fraction, steps: int, step: Fraction) -> Fraction:
    """Return the parameter mu, rounded up, of discrete Gaussian noise of ``steps`` lattice steps.

    It is sensitivity / sqrt(sigma^2 - 4 step^2) for sigma = steps * step: the noise is at least as good as
    continuous noise of that variance, up to the factor that ``certifies`` charges.

    Args: sensitivity in L2, and the lattice step, in counts.
    Raises: ValueError for fewer than 3 steps.
    """
    if steps < 3:
        raise ValueError(f"steps: the noise is {steps} lattice steps wide; at least 3 are needed")
    ratio = sensitivity / step
    return root_ceiling(ratio * ratio / (steps * steps - 4))


def certifies(
    sensitivity: Fraction, steps: int, step: Fraction, coordinates: int, epsilon: Fraction, delta: Fraction
) -> bool:
    """Return whether discrete Gaussian noise of sigma = steps * step is certified (epsilon, delta)-DP.

    Args: sensitivity, an upper bound of the L2 distance of all values of neighbours before noise;
        coordinates, how many values are released.
    Guarantee: true only if it is. The factor between the discrete law and the rounded continuous one is
        charged for every value: 6 N eta in epsilon and exp(3 N eta) in delta.
    """
    charge = 3 * coordinates * ROUNDING_ETA
    if steps < 3 or 2 * charge >= epsilon or charge >= 1:
        return False
    # exp(-x) >= 1 - x.
    return gaussian_delta(mu_of(sensitivity, steps, step), epsilon - 2 * charge) <= delta * (1 - charge)


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
        if high > _MOST_STEPS:
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
