"""The state of a Toeplitz strategy, in whole numbers: one fixed-point number per buffer and column.

A buffer s_i is kept as two 64-bit words: whole counts, and a part in units of v = 2^-buffer_bits. One step is

    output = round_u(sum_i a_i s_i),   s_i <- s_i - round_v((1 - l_i) s_i) + x,

with exact products, each rounded once, halves upwards. The same numbers on the same inputs give the same
words on every machine, so nobody can learn anything from how a computer rounds.
"""

from __future__ import annotations

import numpy as np

from dphist.arrays import Int64Array
from dphist.toeplitz.strategy import WEIGHT_BITS, ToeplitzStrategy

# The words below then stay under 2^62 in every product.
LARGEST_BUFFER = 2**37


class Buffers:
    """The buffers of one epoch. Args: strategy; bits of u and of v; high and low words, (buffers, width).

    Cost: some 20 array operations per bin, of shape (buffers, width).
    """

    def __init__(
        self,
        strategy: ToeplitzStrategy,
        output_bits: int,
        buffer_bits: int,
        high: Int64Array,
        low: Int64Array,
    ) -> None:
        self._arguments = strategy, output_bits, buffer_bits
        self.high, self.low = high, low
        self._output_bits, self._buffer_bits = output_bits, buffer_bits
        self._weights = _column([int(weight * 2**WEIGHT_BITS) for weight in strategy.weights])
        self._decays = _column([n for n, _ in strategy.decays])
        self._shifts = _column([q for _, q in strategy.decays])
        self._halves = (np.int64(1) << self._shifts) >> 1
        self._masks = (np.int64(1) << self._shifts) - 1
        self._lifts = buffer_bits - self._shifts
        self._low_mask = np.int64((1 << buffer_bits) - 1)
        self._drop = buffer_bits + WEIGHT_BITS - output_bits
        self._half_output = np.int64(1 << self._drop - 1)

    def copy(self) -> Buffers:
        """Return buffers with a copy of the words."""
        return Buffers(*self._arguments, self.high.copy(), self.low.copy())

    def output(self) -> Int64Array:
        """Return round_u(sum_i a_i s_i) of every column, in units of u, shape (width,)."""
        rest = (self._weights * self.low).sum(axis=0)
        rest += self._half_output
        whole = (self._weights * self.high).sum(axis=0)
        whole += rest >> self._buffer_bits
        rest &= self._low_mask
        if self._drop > self._buffer_bits:
            return np.asarray(whole >> self._drop - self._buffer_bits)
        return np.asarray((whole << self._buffer_bits - self._drop) + (rest >> self._drop))

    def advance(self, units: Int64Array) -> None:
        """Move every buffer by one bin. Args: the bin's counts, in units of u, shape (width,)."""
        # (1 - l) s = n s / 2^q: the high word gives a part that is exact, the low word is rounded.
        product = self._decays * self.high
        lost = self._decays * self.low
        lost += self._halves
        lost >>= self._shifts
        self.high -= product >> self._shifts
        product &= self._masks
        product <<= self._lifts
        lost += product
        self.low -= lost
        self.low += (units & (1 << self._output_bits) - 1) << self._buffer_bits - self._output_bits
        self.high += units >> self._output_bits
        self.high += self.low >> self._buffer_bits
        self.low &= self._low_mask


def _column(values: list[int]) -> Int64Array:
    return np.array(values, np.int64)[:, np.newaxis]
