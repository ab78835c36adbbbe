"""The matrix of the approximate mechanism: lower-triangular Toeplitz, given by a few exponential buffers.

C has ones on its diagonal and c_j = sum_i a_i l_i^(j-1) on the j-th diagonal below it. Released is C x plus
noise. Because c is a short sum of exponentials, C x needs one number of state for each buffer i. All numbers
here are public.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from dphist.arrays import FloatArray
from dphist.certified import ceiling_of, power_ceiling, power_floor
from dphist.privacy import exact, ratio

LARGEST_HORIZON = 2**24
LARGEST_BUFFERS = 8
# Weights are multiples of 2^-22; rates are 1 - n / 2^q with at most 12 bits in n. The optimum is so flat that
# this costs nothing, and products with a buffer's two words fit into 64 bits.
WEIGHT_BITS = 22
DECAY_BITS = 12
SLOWEST_BITS = 40
# Both certified sums use powers with this many bits, which keeps the fractions short.
_BITS = 256


@dataclass(frozen=True)
class ToeplitzStrategy:
    """A lower-triangular Toeplitz matrix C of ``horizon`` rows, exact, with a few numbers of state.

    Args: horizon T in bins; weights a_i, multiples of 2^-22 above zero; rates l_i in (0, 1), falling. A rate
        is 1 - n / 2^q with n below 2^12 and q at most 40. The sum of a_i / l_i is at most 1.
    Guarantee: c_1, c_2, ... are at least 0 and fall, and so do b_0, b_1, ... (the running sums of the
        coefficients of 1 / c): the rows of A C^-1, where A adds up bins.
    Raises: ValueError naming the field that is wrong.

    >>> strategy = ToeplitzStrategy(3, (Fraction(1, 2),), (Fraction(1, 2),))
    >>> strategy.coefficients().tolist(), strategy.gram(0, 0) == Fraction(21, 16)
    ([1.0, 0.5, 0.25], True)
    """

    horizon: int
    weights: tuple[Fraction, ...]
    rates: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if isinstance(self.horizon, bool) or not isinstance(self.horizon, int):
            raise ValueError(f"horizon: {self.horizon!r} is not a whole number of bins")
        if not 1 <= self.horizon <= LARGEST_HORIZON:
            raise ValueError(f"horizon: {self.horizon} bins are outside [1, {LARGEST_HORIZON}]")
        if not 1 <= len(self.weights) == len(self.rates) <= LARGEST_BUFFERS:
            raise ValueError(
                f"weights: {len(self.weights)} weights and {len(self.rates)} rates given; give as many of "
                f"both, 1 to {LARGEST_BUFFERS}"
            )
        for weight in self.weights:
            if not isinstance(weight, Fraction) or not _fits(weight, WEIGHT_BITS, WEIGHT_BITS):
                raise ValueError(f"weights: {weight!r} is not a fraction above zero in units of 2^-22")
        for rate in self.rates:
            if not isinstance(rate, Fraction) or rate <= 0 or not _fits(1 - rate, DECAY_BITS, SLOWEST_BITS):
                raise ValueError(f"rates: {rate!r} is not 1 - n / 2^q with 0 < n < 2^12 and q <= 40")
        if any(first <= second for first, second in pairwise(self.rates)):
            raise ValueError("rates: they must fall, so that equal strategies have equal texts")
        # With this the roots of 1 / c lie in [0, 1), between the rates, and b falls without changing sign.
        if sum(weight / rate for weight, rate in zip(self.weights, self.rates, strict=True)) > 1:
            raise ValueError("weights: the sum of weight / rate is above 1; the inverse would oscillate")

    def __hash__(self) -> int:
        return hash((self.horizon, self.weights, self.rates))

    @property
    def buffers(self) -> int:
        """The number of buffers, each one number of state per column."""
        return len(self.weights)

    @property
    def decays(self) -> tuple[tuple[int, int], ...]:
        """The pairs (n, q) of 1 - rate = n / 2^q, in lowest terms."""
        return tuple(((1 - rate).numerator, (1 - rate).denominator.bit_length() - 1) for rate in self.rates)

    def coefficients(self, count: int | None = None) -> FloatArray:
        """Return c_0, c_1, ..., by default all ``horizon`` of them, as doubles. Cost: O(count * buffers)."""
        size = self.horizon if count is None else count
        c = np.zeros(size)
        powers = np.arange(max(0, size - 1))
        for weight, rate in zip(self.weights, self.rates, strict=True):
            c[1:] += float(weight) * np.exp(powers * np.log1p(-float(1 - rate)))
        c[:1] = 1.0
        return c

    def gram(self, first: int, second: int) -> Fraction:
        """Return an upper bound of G(first, second), G = C'C: how much the effects of two bins overlap.

        Guarantee: above the true value by less than 2^-150.
        Args: bins from 0. Raises: ValueError for a bin outside the horizon.
        """
        earlier, later = sorted((first, second))
        if not 0 <= earlier <= later < self.horizon:
            raise ValueError(f"bins {first}, {second}: outside the {self.horizon} bins of the strategy")
        if earlier == later:
            return 1 + self._products(self.weights, self.horizon - 1 - later)
        reached = [
            a * power_ceiling(rate, later - earlier - 1)
            for a, rate in zip(self.weights, self.rates, strict=True)
        ]
        return self._overlap(reached, later)

    def windows_norm_squared(self, starts: Sequence[int]) -> Fraction:
        """Return a bound on |C x|^2 for counts x >= 0 that add up to at most 1 in each window of bins.

        The bound is sum_w G(f_w, f_w) + 2 sum_(w < v) G(l_w, f_v), where f_w and l_w are the first and the
        last bin of window w. G(s, t) falls as t grows and as the bins move apart, so no pair of bins of two
        windows overlaps more than l_w and f_v, and no bin of a window weighs more than its first.

        Args: the first bins of the windows, rising from 0. A window ends where the next begins.
        Raises: ValueError for other starts.
        Cost: some 30 microseconds per window and pair of buffers.
        """
        if not starts or starts[0] != 0 or any(a >= b for a, b in pairwise(starts)):
            raise ValueError("window_starts: the first bins of the windows must rise from 0")
        if starts[-1] >= self.horizon:
            raise ValueError(f"window_starts: {starts[-1]} is outside the {self.horizon} bins")
        total = self.gram(0, 0)
        # reach[i]: the sum over earlier windows w of l_i^(f_v - l_w - 1); the last bin l_w is f_(w+1) - 1.
        reach = [Fraction(0)] * self.buffers
        for before, start in pairwise(starts):
            reach = [
                _up(r * power_ceiling(rate, start - before)) + 1
                for r, rate in zip(reach, self.rates, strict=True)
            ]
            reached = [a * r for a, r in zip(self.weights, reach, strict=True)]
            total += self.gram(start, start) + 2 * self._overlap(reached, start)
        return _up(total)

    def _overlap(self, reached: Sequence[Fraction], later: int) -> Fraction:
        """Return sum_i reached_i (1 + l_i sum_j a_j sum_(n < T - 1 - later) (l_i l_j)^n), rounded up."""
        decayed = [r * rate for r, rate in zip(reached, self.rates, strict=True)]
        return _up(sum(reached, Fraction(0))) + self._products(decayed, self.horizon - 1 - later)

    def _products(self, firsts: Sequence[Fraction], terms: int) -> Fraction:
        """Return sum_ij firsts_i a_j sum_(n < terms) (l_i l_j)^n, rounded up."""
        total = Fraction(0)
        for first, rate in zip(firsts, self.rates, strict=True):
            for weight, other in zip(self.weights, self.rates, strict=True):
                base = rate * other
                total += _up(first * weight * (1 - power_floor(base, terms)) / (1 - base))
        return total

    def rounding_gain(self) -> Fraction:
        """Return sum_i a_i / (1 - l_i): how far roundings of the buffers by 1 can move an output."""
        pairs = zip(self.weights, self.rates, strict=True)
        return sum((weight / (1 - rate) for weight, rate in pairs), Fraction(0))

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of the canonical text: whole numbers and fractions as "p/q"."""
        return {
            "horizon": self.horizon,
            "rates": [ratio(rate) for rate in self.rates],
            "weights": [ratio(weight) for weight in self.weights],
        }

    def to_json(self) -> str:
        """Return the canonical text: sorted keys, no spaces, fractions as "p/q"."""
        return json.dumps(self.to_fields(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_fields(cls, fields: Any) -> ToeplitzStrategy:
        """Return the strategy of ``to_fields``, checked again. Raises: ValueError for any other fields."""
        if not isinstance(fields, Mapping) or set(fields) != {"horizon", "rates", "weights"}:
            raise ValueError("strategy: expected the keys horizon, rates, weights")
        if not isinstance(fields["rates"], list) or not isinstance(fields["weights"], list):
            raise ValueError("strategy: rates and weights are lists of fractions")
        return cls(
            fields["horizon"],
            tuple(exact(weight, "weights") for weight in fields["weights"]),
            tuple(exact(rate, "rates") for rate in fields["rates"]),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> ToeplitzStrategy:
        """Read the text of ``to_json``, and check it. Raises: ValueError for other fields or bad values."""
        return cls.from_fields(json.loads(text))


def rounded_weight(weight: Fraction) -> Fraction:
    """Return the nearest weight that a strategy may have. Args: weight above zero."""
    return Fraction(max(1, round(weight * 2**WEIGHT_BITS)), 2**WEIGHT_BITS)


def rounded_decay(decay: Fraction) -> Fraction:
    """Return a nearest number n / 2^q of at most 12 bits. Args: decay in (0, 1).

    >>> rounded_decay(Fraction(1, 3))
    Fraction(2731, 8192)
    """
    places = DECAY_BITS - 1
    while decay * 2**places < 2 ** (DECAY_BITS - 1):
        places += 1
    # Rounding up to a full power of 2 leaves a number of one bit.
    return Fraction(round(decay * 2**places), 2**places)


def _fits(value: Fraction, digits: int, places: int) -> bool:
    """Return whether a value is n / 2^q with 0 < n < 2^digits and q <= places."""
    denominator = value.denominator
    return (
        0 < value.numerator < 1 << digits
        and denominator & denominator - 1 == 0
        and denominator <= 1 << places
    )


def _up(value: Fraction) -> Fraction:
    return ceiling_of(value, _BITS)
