"""Running counts and ranges from released values alone, each with its variance and a certified interval.

C is square, so there is one unbiased linear estimate of the counts: C^-1 y. It never changes when later bins
close: nothing is revised, and the estimate of a range is the difference of two running counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray, Int64Array
from dphist.snapshots import Snapshot
from dphist.toeplitz.counter import LARGEST_BUFFER, Buffers, checked_bin
from dphist.toeplitz.design import ToeplitzDesign
from dphist.toeplitz.inverse import inverse_weights

# The share of 1 - confidence that pays for the noise being on a lattice.
_LATTICE_SHARE = 2.0**-20
# Doubles in the closed forms are right to far more digits than this.
_FLOAT_MARGIN = 1.0 + 2.0**-30


@dataclass(frozen=True)
class RunningSnapshot(Snapshot):
    """The state from which running counts continue. It follows from released values, so it is public.

    Args: bin; high and low, (buffers, width), the words of the buffers; total, (width,), the running counts.
    """

    bin: int
    high: Int64Array = field(repr=False)
    low: Int64Array = field(repr=False)
    total: Int64Array = field(repr=False)

    code, noun = b"dpTR", "running counts of an approximate stream"


class RunningCounts:
    """Running counts from released values, in whole units of u: the same numbers on every machine.

    The counter's buffers, fed with x_t = y_t - round_u(sum_i a_i s_i) in place of exact counts.
    Without noise this gives back the exact counts, unit for unit.

    Guarantee: post-processing of released values. The error of every running count is sum_j b_j z_j, up to
        ``rounding_bounds``.
    Args: the design of the released values.
    Cost: some 20 array operations per bin.
    """

    def __init__(self, design: ToeplitzDesign) -> None:
        self.design = design
        self._bins = 0
        self._total = np.zeros(design.width, np.int64)
        self._buffers = Buffers(design)

    @property
    def bins(self) -> int:
        """The number of bins whose released values have been appended."""
        return self._bins

    @property
    def total(self) -> Int64Array:
        """The running count after the last bin, in units of u, shape (width,)."""
        return self._total.copy()

    def append(self, released: Int64Array) -> Int64Array:
        """Append the next bins' released values; return the running count after each, in units of u.

        Args: released, int64 of shape (bins, width), in units of u, as the counter returned them.
        Raises: ValueError for values of another type or shape, beyond the horizon, or too large to be real.
        """
        rows, design = np.asarray(released), self.design
        if rows.dtype != np.int64 or rows.ndim != 2 or rows.shape[1] != design.width:
            raise ValueError(
                f"released values: {rows.dtype} {rows.shape} given; int64 of shape (bins, {design.width}) "
                "is needed"
            )
        if self._bins + len(rows) > design.horizon:
            raise ValueError(f"released values: more than {design.horizon} bins of an epoch")
        if rows.size and max(abs(int(rows.min())), abs(int(rows.max()))) >> 62:
            raise ValueError("released values: one is beyond 2^62 units; no counter released it")
        after, counts = self._buffers.copy(), np.empty_like(rows)
        for count, row in zip(counts, rows, strict=True):
            np.subtract(row, after.output(), out=count)
            after.advance(count)
        if np.abs(after.high).max(initial=0) > LARGEST_BUFFER:
            raise ValueError(
                "released values: they add up to more than 2^37 events; no counter released them"
            )
        running = self._total + np.cumsum(counts, axis=0)
        # Nothing before this line has changed the estimates: values that are refused leave no trace.
        if len(running):
            self._total = running[-1].copy()
        self._buffers = after
        self._bins += len(rows)
        return np.asarray(running)

    def snapshot(self) -> RunningSnapshot:
        """Return a copy of the state."""
        buffers = self._buffers
        return RunningSnapshot(self._bins, buffers.high.copy(), buffers.low.copy(), self._total.copy())

    @classmethod
    def restore(cls, design: ToeplitzDesign, snapshot: RunningSnapshot) -> RunningCounts:
        """Continue from a snapshot. Raises: ValueError if it is not one of this design."""
        buffers = Buffers(design, snapshot.high, snapshot.low)
        if snapshot.total.shape != (design.width,):
            raise ValueError(f"running counts: the totals are not of shape ({design.width},)")
        running = cls(design)
        running._bins = checked_bin(design, snapshot.bin)
        running._total = snapshot.total.copy()
        running._buffers = buffers
        return running


def prefix_variances(design: ToeplitzDesign, bins: ArrayLike, columns: int = 1) -> FloatArray:
    """Return the variance of running counts after t bins, in counts squared, shape (questions,).

    Args: bins, the t of each question, 0 to horizon; columns, how many columns are added up.
    Cost: O(buffers^2) per question.
    """
    t = _checked(design, bins)
    return np.asarray(columns * float(design.sigma) ** 2 * inverse_weights(design.strategy).squares(t))


def range_variances(
    design: ToeplitzDesign, starts: ArrayLike, stops: ArrayLike, columns: int = 1
) -> FloatArray:
    """Return the variance of the numbers of events in bins [start, stop), in counts squared.

    Guarantee: of running_stop - running_start; the variance of sums over columns is columns times as large.
    Raises: ValueError unless 0 <= start <= stop <= horizon.
    """
    first, last = _checked_ranges(design, starts, stops)
    squares = inverse_weights(design.strategy).range_squares(first, last)
    return np.asarray(columns * float(design.sigma) ** 2 * squares)


def rounding_bounds(
    design: ToeplitzDesign, starts: ArrayLike, stops: ArrayLike, columns: int = 1
) -> FloatArray:
    """Return bounds, in counts, on the change of answers for bins [start, stop) by all roundings together.

    Counter and reader each round; the difference of both moves a value by at most ``design.rounding``.
    """
    first, last = _checked_ranges(design, starts, stops)
    sums = inverse_weights(design.strategy).range_sums(first, last)
    return np.asarray(columns * float(design.rounding) * _FLOAT_MARGIN * sums)


def half_widths(
    design: ToeplitzDesign, starts: ArrayLike, stops: ArrayLike, confidence: float = 0.95, columns: int = 1
) -> FloatArray:
    """Return half widths of intervals around the answers for bins [start, stop), in counts.

    Guarantee: each interval by itself contains the true number with at least this confidence. It is the
        normal quantile times the standard deviation, widened by the most that the lattice and the roundings
        can add.
    Args: confidence in (0, 1); columns, how many columns are added up.
    Raises: ValueError for a confidence or a range that is out of bounds.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence: {confidence} is outside (0, 1); write for example 0.95")
    from scipy.special import ndtri  # imported here because it costs every start a quarter of a second

    deviations = np.sqrt(range_variances(design, starts, stops, columns))
    missed = 1.0 - confidence
    # P(|N| > quantile) is the larger share. The smaller one pays for rounding a continuous variable to the
    # lattice, whose errors add up to a sub-Gaussian variable: docs/decisions/0036 has the proof.
    quantile = -float(ndtri(0.5 * missed * (1.0 - _LATTICE_SHARE)))
    lattice = (
        2.0 * float(design.step / design.sigma) * math.sqrt(2.0 * math.log(4.0 / (missed * _LATTICE_SHARE)))
    )
    return np.asarray(
        deviations * (quantile + lattice) * _FLOAT_MARGIN + rounding_bounds(design, starts, stops, columns)
    )


def mean_squared_error(design: ToeplitzDesign) -> float:
    """Return the expected squared error of a running count, averaged over the epoch, in counts squared."""
    return float(design.sigma) ** 2 * inverse_weights(design.strategy).mean_square(design.horizon)


def _checked(design: ToeplitzDesign, bins: ArrayLike) -> Int64Array:
    t = np.atleast_1d(np.asarray(bins))
    if t.ndim != 1 or t.dtype.kind not in "iu":
        raise ValueError(f"bins: {t.dtype} {t.shape} given; whole numbers of shape (n,) are needed")
    if t.size and (t.min() < 0 or t.max() > design.horizon):
        raise ValueError(f"bins: some are outside [0, {design.horizon}]")
    return t.astype(np.int64)


def _checked_ranges(
    design: ToeplitzDesign, starts: ArrayLike, stops: ArrayLike
) -> tuple[Int64Array, Int64Array]:
    first, last = np.broadcast_arrays(_checked(design, starts), _checked(design, stops))
    if (first > last).any():
        raise ValueError("ranges: a start is after its stop")
    return first, last
