"""Exact laws of discrete Gaussian noise in whole numbers of 2^-BITS, and the exact delta of shifted noise."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from dphist.noise.exponentials import exp_bounds

BITS = 160


@lru_cache(maxsize=64)
def noise_law(steps: int) -> dict[int, int]:
    """Return P(Z = z) of discrete Gaussian noise of sigma = steps, for |z| up to 13 sigma."""
    reach = 13 * steps
    masses = {z: exp_bounds(Fraction(z * z, 2 * steps * steps), BITS)[0] for z in range(reach + 1)}
    total = 2 * sum(masses.values()) - masses[0]
    return {z: (masses[abs(z)] << BITS) // total for z in range(-reach, reach + 1)}


@lru_cache(maxsize=4096)
def exact_delta(shift: tuple[int, ...], steps: int, epsilon: Fraction) -> float:
    """Return the least delta for noise and the same noise shifted, off by less than 2^-100.

    With noise z, the loss is (2 <z, h> + |h|^2) / (2 sigma^2): it is a function of <z, h>.
    Args: shift, in lattice steps, without zeros.
    """
    law = {0: 1 << BITS}
    for size in shift:
        law = _plus(law, noise_law(steps), size)
    square = sum(size * size for size in shift)
    delta = 0
    for place, mass in law.items():
        loss = Fraction(2 * place + square, 2 * steps * steps)
        if loss > epsilon:
            delta += mass - (mass * exp_bounds(loss - epsilon, BITS)[0] >> BITS)
    return delta / 2.0**BITS


def _plus(law: dict[int, int], noise: dict[int, int], size: int) -> dict[int, int]:
    """Return the law of a sum: of the first variable and ``size`` times the second."""
    found: dict[int, int] = {}
    for place, mass in law.items():
        for z, other in noise.items():
            key = place + size * z
            found[key] = found.get(key, 0) + (mass * other >> BITS)
    return found


def canonical(shift: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of a shift without zeros, sorted: signs and orders do not change the law."""
    return tuple(sorted(abs(size) for size in shift if size))
