"""Exact draws of geometric and of discrete Laplace variables."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.noise.blocks import Block, Entropy

_DIGIT_BITS = 8
# The digits above the last one are drawn together, if their step is at least this: some 1,400 values.
_LEAST_STEP = Fraction(1, 32)
# Larger draws are cut, so that what is in use stays in the cache of a core.
_AT_ONCE = 1 << 16


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
