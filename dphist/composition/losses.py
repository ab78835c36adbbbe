"""The losses of several private releases about the same people, and the law of pure losses, rounded up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm
from typing import NamedTuple

from dphist.certified import exp_bounds

BITS = 96  # weights are whole numbers over 2^96
_ONE = 1 << BITS
_TINY = 1 << BITS - 80  # weights below 2^-80 count as a loss without bound
_FINE, _COARSE = 1 << 13, 1_000  # points while laws are added up, and in the result
_SLOT_BYTES = 2 * BITS // 8 + 4  # room for a sum of _FINE and more products


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of several releases that one privacy unit may be in.

    Args:
        pure: (epsilon, number of releases with it), sorted: releases that are epsilon-DP.
        mu_squared: the sum of mu^2 over Gaussian releases. Such a release is at most as revealing as one
            normal number of variance 1 whose mean the unit moves by mu.
        delta: the sum of the deltas of releases of which only (epsilon, delta) is known.

    >>> twice = Losses.of_pure(Fraction(1)) + Losses.of_pure(Fraction(1))
    >>> twice == Losses.of_pure(Fraction(1), times=2), twice.epsilon
    (True, Fraction(2, 1))
    """

    pure: tuple[tuple[Fraction, int], ...] = ()
    mu_squared: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)

    @classmethod
    def of_pure(cls, epsilon: Fraction, times: int = 1) -> Losses:
        """Return the losses of releases that are each epsilon-DP."""
        return cls(pure=((epsilon, times),)) if times and epsilon else cls()

    @classmethod
    def of_gaussian(cls, mu: Fraction, times: int = 1) -> Losses:
        """Return the losses of Gaussian releases, each with this certified mu."""
        return cls(mu_squared=mu * mu * times)

    @classmethod
    def of_approximate(cls, epsilon: Fraction, delta: Fraction) -> Losses:
        """Return the loss of one release of which only its (epsilon, delta) is known."""
        return cls(pure=((epsilon, 1),), delta=delta)

    def __add__(self, other: Losses) -> Losses:
        times: Counter[Fraction] = Counter()
        for epsilon, number in self.pure + other.pure:
            times[epsilon] += number
        return Losses(
            tuple(sorted(times.items())), self.mu_squared + other.mu_squared, self.delta + other.delta
        )

    @property
    def epsilon(self) -> Fraction:
        """The sum of the epsilons of the releases that are not Gaussian."""
        return sum((epsilon * number for epsilon, number in self.pure), Fraction(0))

    @property
    def is_pure(self) -> bool:
        """Whether nothing but pure releases is in the sum."""
        return not self.mu_squared and not self.delta


class PureLaw(NamedTuple):
    """Possible losses, and an upper bound of the weight of each.

    Args:
        step: the distance of two neighbouring losses.
        first: the first loss, in steps.
        weights: of the losses first, first + 1, ... steps, over 2^BITS.
        unbounded: the weight of losses that are treated as infinite, over 2^BITS.
    """

    step: Fraction
    first: int
    weights: Sequence[int]
    unbounded: int = 0

    @property
    def losses(self) -> list[tuple[Fraction, int]]:
        """Every loss with a weight above 0, and its weight."""
        return [(self.step * (self.first + i), weight) for i, weight in enumerate(self.weights) if weight]


@lru_cache(maxsize=64)
def pure_law(pure: tuple[tuple[Fraction, int], ...]) -> PureLaw:
    """Return an upper bound of the law of the loss of releases, given as (epsilon, number of releases).

    Guarantee: for every f of the loss that rises and lies in [0, 1], the sum of f over the weights plus
        ``unbounded`` is at least the expectation of f under independent losses of randomized response: each
        is +epsilon with probability 1 / (1 + exp(-epsilon)), otherwise -epsilon.
    Cost: milliseconds for 1,000 releases. Losses are exact if the multiples of the epsilons' common step
        are at most ``_COARSE`` points; otherwise they are rounded up to fewer points.
    """
    laws = [_equal_releases(epsilon, number) for epsilon, number in pure]
    width = sum((law.step * len(law.weights) for law in laws), Fraction(0))
    step = max(_common_step([law.step for law in laws]), width / _FINE)
    total = PureLaw(step, 0, [_ONE])
    for law in laws:
        total = _trimmed(_sum_of(total, _with_step(law, step)))
    return total if len(total.weights) <= _COARSE else _with_step(total, step * len(total.weights) / _COARSE)


def _common_step(steps: Sequence[Fraction]) -> Fraction:
    """Return the largest fraction of which all steps are multiples."""
    if not steps:
        return Fraction(1)
    return Fraction(gcd(*(step.numerator for step in steps)), lcm(*(step.denominator for step in steps)))


def _equal_releases(epsilon: Fraction, number: int) -> PureLaw:
    """Return the law of the sum of ``number`` losses of randomized response, each + or - epsilon."""
    lower, upper = exp_bounds(epsilon, BITS)
    gain, loss = _ceil(_ONE * _ONE, _ONE + lower), _ceil(upper * _ONE, _ONE + upper)
    power, total = PureLaw(epsilon, -1, [loss, 0, gain]), PureLaw(epsilon, 0, [_ONE])
    while number:
        if number % 2:
            total = _trimmed(_sum_of(total, power))
        number //= 2
        if number:
            power = _trimmed(_sum_of(power, power))
    return total


def _sum_of(one: PureLaw, other: PureLaw) -> PureLaw:
    """Return the law of the sum of two independent losses with the same step, rounded up."""
    length = len(one.weights) + len(other.weights) - 1
    # One product of two long numbers multiplies the two laws as polynomials: each slot holds one weight.
    product = (_packed(one.weights) * _packed(other.weights)).to_bytes(_SLOT_BYTES * (length + 1), "little")
    slots = (product[i * _SLOT_BYTES : (i + 1) * _SLOT_BYTES] for i in range(length))
    weights = [_ceil(int.from_bytes(slot, "little"), _ONE) for slot in slots]
    # A loss without bound in one of the two is one in the sum.
    unbounded = _ceil(
        one.unbounded * (sum(other.weights) + other.unbounded) + other.unbounded * sum(one.weights), _ONE
    )
    return PureLaw(one.step, one.first + other.first, weights, unbounded)


def _packed(weights: Sequence[int]) -> int:
    return int.from_bytes(b"".join(weight.to_bytes(_SLOT_BYTES, "little") for weight in weights), "little")


def _trimmed(law: PureLaw) -> PureLaw:
    """Return the law with the tiny weights at both ends counted as losses without bound."""
    kept = [i for i, weight in enumerate(law.weights) if weight >= _TINY]
    first, last = kept[0], kept[-1]
    dropped = sum(law.weights[:first]) + sum(law.weights[last + 1 :])
    return PureLaw(law.step, law.first + first, law.weights[first : last + 1], law.unbounded + dropped)


def _with_step(law: PureLaw, step: Fraction) -> PureLaw:
    """Return the law with every loss rounded up to a multiple of another step."""
    ratio = law.step / step
    places = [_ceil((law.first + i) * ratio.numerator, ratio.denominator) for i in range(len(law.weights))]
    weights = [0] * (places[-1] - places[0] + 1)
    for place, weight in zip(places, law.weights, strict=True):
        weights[place - places[0]] += weight
    return PureLaw(step, places[0], weights, law.unbounded)


def _ceil(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
