"""The approximate counter: turns exact counts of closed bins into noisy values, each released once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import Int64Array
from dphist.noise import GaussianSource
from dphist.room import FullError
from dphist.snapshots import Snapshot
from dphist.toeplitz.buffers import Buffers
from dphist.toeplitz.design import ToeplitzDesign

# All events of a column in an epoch. With it every sum of the counter fits into 64 bits.
LARGEST_COUNT = 2**36
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
        self._buffers = empty_buffers(design)

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
        counter._buffers = buffers_of(design, snapshot)
        counter._bin = snapshot.bin
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


class _Words(Protocol):
    @property
    def bin(self) -> int: ...
    @property
    def high(self) -> Int64Array: ...
    @property
    def low(self) -> Int64Array: ...


def empty_buffers(design: ToeplitzDesign) -> Buffers:
    """Return the buffers before the first bin."""
    words = np.zeros((design.strategy.buffers, design.width), np.int64)
    return Buffers(design.strategy, design.output_bits, design.buffer_bits, words, words.copy())


def buffers_of(design: ToeplitzDesign, snapshot: _Words) -> Buffers:
    """Return the buffers of a snapshot, as a copy. Raises: ValueError if they are not of this design."""
    shape = (design.strategy.buffers, design.width)
    high, low = snapshot.high, snapshot.low
    if high.shape != shape or low.shape != shape:
        raise ValueError(f"approximate counter snapshot: its buffers are not of shape {shape}")
    if not 0 <= snapshot.bin <= design.horizon:
        raise ValueError(
            f"approximate counter snapshot: bin {snapshot.bin} is outside the horizon {design.horizon}"
        )
    if low.size and (low.min() < 0 or low.max() >> design.buffer_bits):
        raise ValueError("approximate counter snapshot: a low word is out of range; the bytes are damaged")
    return Buffers(design.strategy, design.output_bits, design.buffer_bits, high.copy(), low.copy())
