"""Exact draws of geometric and of discrete Laplace variables, by comparing random bits with certified digits.

Let P(G >= n) = exp(-n / b). Write G in base 256. Its probability is the product of one factor for each
digit, so the digits are independent, and a digit d at place k has a probability proportional to exp(-d 256^k
/ b). All digits above some place together are a geometric variable again. A ``Block`` draws one of these
variables.

A block compares a uniform number U in [0, 1) with the cumulative probabilities P_1 < P_2 < ... of its law:
the value is the number of P_j <= U. The bits of U are drawn only as far as needed. The first 16 decide for
all but some per cent of draws, by a table. The first 64 decide for all but the few of which all 64 bits
equal those of some P_j. For these, more bits of U and of P_j are compared, until they differ. No step
rounds, so the law is exact: docs/decisions/0034-an-exact-sampler.md has the proof.
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import count

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.certified import exp_bounds

# Returns so many random bytes.
Entropy = Callable[[int], bytes]

_WORD = 64
_FIRST = 16
_UNDECIDED = -1
# Of the recurrence that computes all digits of a law.
_PRECISION = 256
_DIGIT_BITS = 8
# The digits above the last one are drawn together, if their step is at least this: some 1,400 values.
_LEAST_STEP = Fraction(1, 32)
# Larger draws are cut, so that what is in use stays in the cache of a core.
_AT_ONCE = 1 << 16


class Block:
    """A variable with P(value = j) proportional to exp(-j step), below a limit or without one.

    Args: step, above 0; limit, the values are below it; None for all whole numbers.
    Cost: some milliseconds to make, 130 kB; about 2 bytes of entropy per draw.

    >>> Block(Fraction(1), 2).draw(4, lambda size: bytes(size)).tolist()
    [0, 0, 0, 0]
    """

    def __init__(self, step: Fraction, limit: int | None = None) -> None:
        self.step = step
        self.limit = limit
        self.leads = np.array(_leading_bits(step, limit, _PRECISION), dtype=np.uint64)
        first = np.arange(1 << _FIRST, dtype=np.uint64) << np.uint64(_WORD - _FIRST)
        last = first + np.uint64((1 << (_WORD - _FIRST)) - 1)
        decided = np.searchsorted(self.leads, first, side="left")
        certain = decided == np.searchsorted(self.leads, last, side="right")
        self._table = np.where(certain, decided, _UNDECIDED).astype(np.int16)

    def draw(self, size: int, entropy: Entropy) -> Int64Array:
        """Return independent draws, shape (size,)."""
        words = np.frombuffer(entropy(2 * size), dtype=np.uint16)
        drawn = self._table[words].astype(np.int64)
        open_ = np.flatnonzero(drawn == _UNDECIDED)
        if open_.size:
            drawn[open_] = self._by_64_bits(words[open_].astype(np.uint64), entropy)
        return drawn

    def _by_64_bits(self, words: NDArray[np.uint64], entropy: Entropy) -> Int64Array:
        """Return the values for uniform numbers of which the first 16 bits are drawn."""
        more = np.frombuffer(entropy(8 * words.size), dtype=np.uint64) >> np.uint64(_FIRST)
        uniform = (words << np.uint64(_WORD - _FIRST)) | more
        least = np.searchsorted(self.leads, uniform, side="left").astype(np.int64)
        tied = np.append(self.leads, np.uint64(0))[least] == uniform
        tied &= least < self.leads.size
        for place in np.flatnonzero(tied).tolist():
            least[place] = self.decide(int(uniform[place]), int(least[place]), entropy)
        return least

    def decide(self, uniform: int, least: int, entropy: Entropy) -> int:
        """Return the value of a uniform number that ties with a probability in its first 64 bits.

        Args: uniform, its first 64 bits; least, a value that it has at least.
        """
        bits = _WORD
        while True:
            while True:
                if least + 1 == self.limit:
                    return least
                lower, upper = self.cumulative(least + 1, bits)
                if uniform < upper:
                    break
                least += 1
            if uniform + 1 <= lower:
                return least
            uniform = (uniform << _WORD) | int.from_bytes(entropy(_WORD // 8), "little")
            bits += _WORD

    def cumulative(self, values: int, bits: int) -> tuple[int, int]:
        """Return whole bounds, lower and upper, on 2^bits * P(value < values)."""
        precision = bits + _PRECISION
        one = 1 << precision
        lower, upper = exp_bounds(values * self.step, precision)
        least, most = one - upper, one - lower
        if self.limit is not None:
            lower, upper = exp_bounds(self.limit * self.step, precision)
            least, most = (least << precision) // (one - lower), -(-(most << precision) // (one - upper))
        return least >> _PRECISION, -(-most >> _PRECISION)


def _leading_bits(step: Fraction, limit: int | None, precision: int) -> list[int]:
    """Return the first 64 bits of P(value < j) for j = 1, 2, ... up to the limit, or until all are ones."""
    one = 1 << precision
    lower_step, upper_step = exp_bounds(step, precision)
    lower, upper = (0, 0) if limit is None else exp_bounds(limit * step, precision)
    whole_least, whole_most = one - upper, one - lower
    leads = []
    lower = upper = one
    for value in count(1):
        lower, upper = lower * lower_step >> precision, -(-upper * upper_step >> precision)
        least = ((one - upper) << _WORD) // whole_most
        most = min(((one - lower) << _WORD) // whole_least, (1 << _WORD) - 1)  # no probability reaches 1
        if least != most:  # an integer lies between the bounds: compute again with more digits
            return _leading_bits(step, limit, 2 * precision)
        leads.append(least)
        if value + 1 == limit or least == (1 << _WORD) - 1:
            return leads
    raise AssertionError  # count() does not end


class Geometric:
    """Independent integers Z >= 0 with P(Z = z) proportional to exp(-z / scale).

    Args: scale, above 0 and at most 2^52.
    Guarantee: the law is exact, if the entropy is independent uniform bytes.
    Cost: to make, some milliseconds for each of its digits (log256 of the scale).
    """

    def __init__(self, scale: Fraction) -> None:
        digits = 0
        while Fraction(1 << _DIGIT_BITS * digits) < _LEAST_STEP * scale:
            digits += 1
        steps = [Fraction(1 << _DIGIT_BITS * digit) / scale for digit in range(digits + 1)]
        self._low = [Block(step, 1 << _DIGIT_BITS) for step in steps[:-1]]
        self._top = Block(steps[-1])

    def draw(self, size: int, entropy: Entropy) -> Int64Array:
        """Return independent draws, shape (size,)."""
        drawn = self._top.draw(size, entropy) << _DIGIT_BITS * len(self._low)
        for place, block in enumerate(self._low):
            drawn += block.draw(size, entropy) << _DIGIT_BITS * place
        return drawn


class DiscreteLaplace:
    """Independent integers Z with P(Z = z) proportional to exp(-|z| / scale).

    A draw is a sign and a size from a geometric variable. "Minus zero" is drawn anew.

    Args: scale, above 0 and at most 2^52.
    Guarantee: the law is exact, if the entropy is independent uniform bytes.
    Cost: to make, that of ``Geometric``.
    """

    def __init__(self, scale: Fraction) -> None:
        self.scale = scale
        self._sizes = Geometric(scale)

    def draw(self, size: int, entropy: Entropy) -> Int64Array:
        """Return independent draws, shape (size,)."""
        drawn = np.empty(size, dtype=np.int64)
        done = 0
        while done < size:
            left = min(size - done, _AT_ONCE)
            # Fewer than 1 / (2 scale) of the proposals are refused, and never more than half.
            found = self._proposals(left + left // max(1, int(self.scale)) + 1, entropy)[:left]
            drawn[done : done + found.size] = found
            done += found.size
        return drawn

    def _proposals(self, size: int, entropy: Entropy) -> Int64Array:
        """Return the draws of this many proposals, without those that are minus zero."""
        sizes = self._sizes.draw(size, entropy)
        signs = np.frombuffer(entropy(-(-size // 8)), dtype=np.uint8)
        minus = np.unpackbits(signs, count=size).view(np.bool_)
        kept: NDArray[np.bool_] = (sizes != 0) | ~minus
        drawn: Int64Array = np.where(minus, -sizes, sizes)[kept]
        return drawn
