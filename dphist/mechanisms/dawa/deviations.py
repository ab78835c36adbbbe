"""How much the counts in an interval deviate from uniform, exactly, for many intervals at once."""

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array

# Number of intervals whose working arrays fit in a core's cache.
_AT_ONCE = 2**14


class DeviationIndex:
    """Answers dev(b) = sum over j in b of |x_j - mean of b| for any intervals b, in units of 2^-lattice.

    Let an interval have length L and total q L + r, and let s and c be the sum and the number of its counts
    above q. Then dev is 2 (s - c q) - 2 c r / L: integers except for one division, which is rounded down.
    Cost: O(n log d) to build for d distinct counts, O(log d) per interval (a wavelet matrix of their ranks).
    Source: Li et al. (2014), section 3.2, with another structure than their balanced trees.
    """

    def __init__(self, counts: Int64Array, lattice: int) -> None:
        self.counts = counts
        self.lattice = lattice
        self.totals = _prefix(counts)
        self.values, ranks = np.unique(counts, return_inverse=True)
        self.bits = max(1, int(self.values.size).bit_length())
        self._levels: list[tuple[NDArray[np.int32], Int64Array]] = []
        # For each bit, highest first, record which ranks have it, and move them behind the others.
        for bit in range(self.bits - 1, -1, -1):
            ones = (ranks >> bit) & 1
            rank_of_one = _prefix(ones).astype(np.int32)
            self._levels.append((rank_of_one, _prefix(np.where(ones == 1, counts, 0))))
            order = np.argsort(ones, kind="stable")
            ranks, counts = ranks[order], counts[order]

    def of(self, starts: Int64Array, ends: Int64Array) -> Int64Array:
        """Return the deviation of each half-open interval, rounded down to the lattice.

        Guarantee: one event in an interval of length L changes its deviation by at most ``sensitivity(L)``.
        """
        length = ends - starts
        floor, rest = np.divmod(self.totals[ends] - self.totals[starts], length)
        above, total_above = self._above(starts, ends, floor)
        whole = (total_above - above * floor) << (self.lattice + 1)
        return np.asarray(whole - -(-((above * rest) << (self.lattice + 1)) // length))

    def of_length(self, length: int) -> Int64Array:
        """Return the deviation of every interval of this length, in order of its start."""
        starts = np.arange(self.counts.size - length + 1)
        return self.of(starts, starts + length)

    def from_median(self, starts: Int64Array, ends: Int64Array) -> Int64Array:
        """Return the sum over j in b of |x_j - median of b|, in units of 2^-lattice.

        Guarantee: exact. In an interval of two or more bins, one event changes the sum by at most one count:
            the event changes one term by one, and the median minimises the sum. For one bin the sum is 0.
        """
        deviations = np.empty(starts.size, dtype=np.int64)
        for first in range(0, starts.size, _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            length = ends[some] - starts[some]
            least, middle = self._least(starts[some], ends[some], length // 2)
            total = self.totals[ends[some]] - self.totals[starts[some]]
            deviations[some] = total - 2 * least - middle * (length % 2)
        return deviations << self.lattice

    def _least(
        self, starts: Int64Array, ends: Int64Array, wanted: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the sum of the ``wanted`` smallest counts per interval, and the next larger one, if any."""
        # Positions fit 32 bits, which halves the memory traffic.
        low, high, right = (each.astype(np.int32) for each in (starts, ends, wanted))
        inside = self.totals.take(ends) - self.totals.take(starts)
        least = np.zeros_like(inside)
        for ones, sums in self._levels:
            ones_low, ones_high = ones.take(low), ones.take(high)
            sum_of_ones = sums.take(high) - sums.take(low)
            sum_of_zeros = inside - sum_of_ones
            smaller = (high - low) - (ones_high - ones_low)
            goes_right = right >= smaller
            # All counts with a zero in this bit are among the smallest.
            least += sum_of_zeros * goes_right
            inside = np.where(goes_right, sum_of_ones, sum_of_zeros)
            right -= smaller * goes_right
            zeros = np.int32(self.counts.size - int(ones[-1]))
            low = np.where(goes_right, zeros + ones_low, low - ones_low)
            high = np.where(goes_right, zeros + ones_high, high - ones_high)
        # The remaining counts are equal.
        each = inside // np.maximum(high - low, 1)
        return least + right * each, each

    def _above(
        self, starts: Int64Array, ends: Int64Array, floor: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return the number and the sum of the counts above ``floor`` in each interval."""
        threshold = np.searchsorted(self.values, floor, side="right")
        low, high = starts, ends
        above = np.zeros_like(starts)
        total = np.zeros_like(starts)
        for bit, (ones, sums) in zip(range(self.bits - 1, -1, -1), self._levels, strict=True):
            ones_low, ones_high = ones[low].astype(np.int64), ones[high].astype(np.int64)
            goes_right = (threshold >> bit) & 1 == 1
            # Where the threshold's bit is 0, all ones of this level are above it.
            above += np.where(goes_right, 0, ones_high - ones_low)
            total += np.where(goes_right, 0, sums[high] - sums[low])
            zeros = self.counts.size - int(ones[-1])
            low = np.where(goes_right, zeros + ones_low, low - ones_low)
            high = np.where(goes_right, zeros + ones_high, high - ones_high)
        # The remaining counts have exactly the threshold's rank: the first value above the floor.
        present = np.where(threshold < self.values.size, high - low, 0)
        first_above: Int64Array = self.values[np.minimum(threshold, self.values.size - 1)]
        return above + present, np.asarray(total + present * first_above, dtype=np.int64)


def sensitivity(length: int, lattice: int) -> int:
    """Return how much one event can change an interval's rounded deviation, in units of 2^-lattice.

    The exact deviation changes by at most 2 - 2 / length. This happens if the event's bin is on one side of
    the mean and all other bins are on the other side. Rounding down to the lattice adds less than one unit.

    >>> sensitivity(1, 4), sensitivity(4, 4), sensitivity(3, 4)
    (0, 24, 22)
    """
    return -(-(2 * (length - 1) << lattice) // length)


def sensitivity_from_median(length: int, lattice: int) -> int:
    """Return how much one event can change a deviation from the median, in units of 2^-lattice.

    >>> sensitivity_from_median(1, 4), sensitivity_from_median(2, 4), sensitivity_from_median(64, 4)
    (0, 16, 16)
    """
    return 0 if length == 1 else 1 << lattice


def _prefix(values: Int64Array) -> Int64Array:
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
