"""The approximate counter: turns exact counts of closed bins into noisy values, each released once.

Its state is whole numbers. A buffer s_i is kept as two 64-bit words: whole counts, and a part in units of
v = 2^-buffer_bits. One step is

    output = round_u(sum_i a_i s_i),   s_i <- s_i - round_v((1 - l_i) s_i) + x,

with exact products, each rounded once, halves upwards. The same numbers on the same inputs give the same
words on every machine, so nobody can learn anything from how a computer rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import Int64Array
from dphist.noise import GaussianSource
from dphist.snapshots import Snapshot
from dphist.toeplitz.design import ToeplitzDesign
from dphist.toeplitz.strategy import WEIGHT_BITS
from dphist.units import FullError

# All events of a column in an epoch. With it every sum of the counter fits into 64 bits.
LARGEST_COUNT = 2**36
# The words of the buffers then stay under 2^62 in every product.
LARGEST_BUFFER = 2**37
MOST_EVENTS = LARGEST_COUNT // 2  # of a column, as released: then it counts no further bin


@dataclass(frozen=True)
class ToeplitzSnapshot(Snapshot):
    """The state from which a counter continues. SECRET: it follows from exact counts.

    Args: bin, the number of closed bins; high and low, (buffers, width), the words of the buffers.
    """

    bin: int
    high: Int64Array = field(repr=False)
    low: Int64Array = field(repr=False)

    code, noun = b"dpTZ", "approximate counter snapshot"


class ToeplitzCounter:
    """Counts closed bins under continual observation: each bin releases one noisy value per column.

    Released is y_t = x_t + round_u(sum_i a_i s_i) + z_t in units of u = 2^-output_bits, where the z_t are
    independent discrete Gaussian variables. y_t uses the noise of bins 0 to t only.

    Guarantee: all released values of an epoch together are (epsilon, delta)-DP for the design's neighbours,
        also if later events depend on released values; docs/decisions/0036 has the proof. Estimates come from
        released values; only ``snapshot()`` follows from exact counts, no repr or error shows one.
    Args: the design, which names the width in columns.
    Cost: one draw per bin and column, and some 20 array operations per bin.

    >>> from dphist.noise import SystemNoise
    >>> from dphist.toeplitz import RunningCounts, plan_toeplitz
    >>> design = plan_toeplitz(horizon=4, epsilon=10**9, delta="1e-6")
    >>> released = ToeplitzCounter(design).close(np.array([[5], [7]]), SystemNoise())
    >>> np.rint(RunningCounts(design).append(released) * float(design.step)).ravel().tolist()
    [5.0, 12.0]
    """

    def __init__(self, design: ToeplitzDesign) -> None:
        self.design = design
        self._bin = 0
        self._buffers = Buffers(design)

    def __repr__(self) -> str:
        return f"<ToeplitzCounter horizon={self.design.horizon} width={self.design.width} bin={self.bin}>"

    @property
    def bin(self) -> int:
        """The number of bins closed so far: the index of the next one."""
        return self._bin

    def close(self, counts: ArrayLike, noise: GaussianSource) -> Int64Array:
        """Close the next bins and return their released values, in units of u, shape (bins, width).

        Guarantee: see the class. Bins closed together or one by one have the same law. If anything fails,
            nothing was released and the counter is unchanged.
        Args: counts of shape (bins, width), integers, none negative; the source of noise.
        Raises: ValueError beyond the horizon or for counts of a wrong kind; FullError above 2^36 events in a
            column. The message never shows a count.
        """
        exact = self._checked(counts)
        units = exact << self.design.output_bits
        released = units + noise.discrete_gaussian(self.design.variance_steps, exact.shape)
        after = self._buffers.copy()
        for row, added in zip(released, units, strict=True):
            row += after.output()
            after.advance(added)
        # Nothing before this line has changed the counter: a failure leaves every noise draw unused.
        self._buffers = after
        self._bin += len(exact)
        return released

    def snapshot(self) -> ToeplitzSnapshot:
        """Return a copy of the state. SECRET."""
        return ToeplitzSnapshot(self._bin, self._buffers.high.copy(), self._buffers.low.copy())

    @classmethod
    def restore(cls, design: ToeplitzDesign, snapshot: ToeplitzSnapshot) -> ToeplitzCounter:
        """Continue from a snapshot, as if nothing had happened between.

        Raises: ValueError if the snapshot is not one of a counter of this design.
        """
        counter = cls(design)
        counter._buffers = Buffers(design, snapshot.high, snapshot.low)
        counter._bin = checked_bin(design, snapshot.bin)
        return counter

    def _checked(self, counts: ArrayLike) -> Int64Array:
        """Return the counts as int64. Raises: ValueError as ``close``."""
        rows = np.asarray(counts)
        if rows.dtype.kind not in "iu" or rows.ndim != 2 or rows.shape[1] != self.design.width:
            raise ValueError(
                f"counts: {rows.dtype} {rows.shape} given; integers of shape (bins, {self.design.width}) "
                "are needed"
            )
        if self._bin + len(rows) > self.design.horizon:
            raise ValueError(
                f"counts: bins up to {self._bin + len(rows)} given; the epoch has {self.design.horizon}"
            )
        if rows.size and rows.min() < 0:
            raise ValueError("counts: one is negative")
        if rows.size and rows.max() > LARGEST_COUNT:
            raise FullError("counts: one is above 2^36; take shorter bins")
        exact = rows.astype(np.int64)
        # No buffer exceeds what it was plus what is added. Sums of that many bins are taken in doubles, as
        # sums of 64-bit integers could wrap around.
        if float((self._buffers.high + exact.sum(axis=0, dtype=np.float64)).max(initial=0)) > LARGEST_COUNT:
            raise FullError("counts: a column holds more than 2^36 events; shorten the epoch")
        return exact


class Buffers:
    """The buffers of one epoch. Args: design; high and low, (buffers, width), the words, by default zeros.

    Raises: ValueError for words that are not of this design.
    Cost: some 20 array operations per bin, of shape (buffers, width).
    """

    def __init__(
        self, design: ToeplitzDesign, high: Int64Array | None = None, low: Int64Array | None = None
    ) -> None:
        strategy, buffer_bits = design.strategy, design.buffer_bits
        shape = strategy.buffers, design.width
        self._design = design
        self.high = np.zeros(shape, np.int64) if high is None else high.copy()
        self.low = np.zeros(shape, np.int64) if low is None else low.copy()
        if self.high.shape != shape or self.low.shape != shape:
            raise ValueError(f"approximate counter snapshot: its buffers are not of shape {shape}")
        if self.low.size and (self.low.min() < 0 or self.low.max() >> buffer_bits):
            raise ValueError(
                "approximate counter snapshot: a low word is out of range; the bytes are damaged"
            )
        self._output_bits, self._buffer_bits = design.output_bits, buffer_bits
        self._weights = _column([int(weight * 2**WEIGHT_BITS) for weight in strategy.weights])
        self._decays = _column([n for n, _ in strategy.decays])
        self._shifts = _column([q for _, q in strategy.decays])
        self._halves = (np.int64(1) << self._shifts) >> 1
        self._masks = (np.int64(1) << self._shifts) - 1
        self._lifts = buffer_bits - self._shifts
        self._low_mask = np.int64((1 << buffer_bits) - 1)
        self._drop = buffer_bits + WEIGHT_BITS - design.output_bits
        self._half_output = np.int64(1 << self._drop - 1)

    def copy(self) -> Buffers:
        """Return buffers with a copy of the words."""
        return Buffers(self._design, self.high, self.low)

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


def checked_bin(design: ToeplitzDesign, bin: int) -> int:
    """Return the bin of a snapshot. Raises: ValueError if a counter of this design cannot have it."""
    if not 0 <= bin <= design.horizon:
        raise ValueError(f"approximate counter snapshot: bin {bin} is outside the horizon {design.horizon}")
    return bin
