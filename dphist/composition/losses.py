"""The cost of several private releases about the same people, as a list of their losses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction


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
