"""The load of a strategy on its machine: of a tree over all axes, predicted; of windows, by a trial run.

The number of draws and the computing time of a mechanism may depend on the counts. So two synthetic
histograms bound the load of real streams: an empty one, and one in which all counts differ. The second is the
slowest case for mechanisms that search for runs of equal counts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.mechanisms.base import LARGEST_TOTAL
from dphist.noise import Scale, SeededNoise
from dphist.product.design import ProductDesign
from dphist.windows.design import WindowDesign

DRAWS_PER_SECOND = 100_000
PAST_BINS_PER_SECOND = 8_000  # of 1 to 100 keys that are found at once
# The fractional parts of this number's multiples are spread evenly, with neighbours far apart.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
# Every mechanism can tell counts apart that differ by this many noise scales.
_APART = 10


@dataclass(frozen=True)
class Load:
    """The load of a strategy: the noise draws per bin, and the bytes that an epoch releases.

    A causal design draws noise when a bin closes, at most ``most_draws`` draws. An anticipating design draws
    an epoch's whole noise, ``ahead_bytes`` of it, during the second half of the epoch before.
    """

    mean_draws: float
    most_draws: int
    released_bytes: int
    ahead_bytes: int = 0

    @property
    def most_seconds(self) -> float:
        """The seconds that drawing takes for the bin that needs the most noise."""
        return self.most_draws / DRAWS_PER_SECOND

    @classmethod
    def of(cls, design: ProductDesign) -> Self:
        """Return the load of a design."""
        shape, horizon = design.time.shape, design.time.horizon
        drawn = design.columns * sum(design.time.drawn_nodes(horizon))
        if design.time.anticipates:
            numbers = design.columns * horizon
            return cls(drawn / horizon, -(-drawn // horizon), 8 * numbers, 4 * numbers)
        # The last bin, and the bins that complete the first node of each level.
        busiest = {horizon - 1, *(width - 1 for width in shape.widths[1:] if width <= horizon)}
        most = max(len(shape.completed_by(bin)) for bin in busiest)
        return cls(drawn / horizon, design.columns * most, 8 * drawn)


def check_load(design: ProductDesign, bin_us: int) -> Load:
    """Return the load, after checking that drawing noise takes at most half a bin.

    Raises: ValueError with the remedy.
    """
    load = Load.of(design)
    if load.most_seconds > bin_us / 2_000_000:
        raise ValueError(
            f"one bin may need {load.most_draws:,} noise draws, {load.most_seconds:,.1f} s of a bin of "
            f"{bin_us / 1_000_000:g} s; at most half of it: fewer keys or buckets, or longer bins"
        )
    return load


def check_past(bins: int, bin_us: int) -> None:
    """Check that a found key's past of so many bins, with a Toeplitz mechanism, takes at most half a bin.

    Raises: ValueError with the remedy.
    """
    if (seconds := bins / PAST_BINS_PER_SECOND) > bin_us / 2_000_000:
        raise ValueError(
            f"the past of a found key may need {bins:,} bins, {seconds:,.1f} s of a bin of "
            f"{bin_us / 1_000_000:g} s; at most half of it: shorter epochs, or longer bins"
        )


class CountedNoise(SeededNoise):
    """Seeded noise that counts its draws; a selection counts one draw per score. It protects nobody."""

    draws = 0

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """Draw as ``SeededNoise.discrete_laplace``, and count."""
        drawn = super().discrete_laplace(scale, shape)
        self.draws += drawn.size
        return drawn

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """Draw as ``SeededNoise.select``, and count."""
        self.draws += len(scores)
        return super().select(scores, scale)


@dataclass(frozen=True)
class WindowLoad:
    """The load of an epoch's windows, without the load of the tree beside them.

    ``window_draws``: noise draws when a window closes, for an empty window and at most. ``seconds``: the
    longest time to release a window, drawing included. ``released_bytes``: the storage for an epoch.
    """

    bins: int
    window_draws: tuple[int, int]
    seconds: float
    released_bytes: int

    @classmethod
    def of(cls, design: WindowDesign, cpu_seconds: Callable[[], float]) -> Self:
        """Benchmark the mechanism on two synthetic histograms (no user data).

        Args: cpu_seconds, a clock of the caller's processor time, for the computing time on this machine.
            Draws are counted, and each is charged the time that ``Load`` takes for it.
        Raises: the mechanism's ValueError, if it refuses the histogram.
        Cost: that of three histograms with seeded noise.
        """
        nothing = np.zeros(design.buckets, np.int64)
        _trial(design, nothing, cpu_seconds)  # warm-up: loads what the mechanism needs
        trials = [_trial(design, counts, cpu_seconds) for counts in (nothing, all_different(design))]
        draws = [design.histograms * drawn for drawn, _ in trials]
        return cls(
            design.bins,
            (draws[0], max(draws)),
            max(design.histograms * (drawn / DRAWS_PER_SECOND + spent) for drawn, spent in trials),
            8 * design.cells * (design.time.horizon // design.bins),
        )

    def check(self, bin_us: int) -> None:
        """Check that releasing a window takes at most half a bin, so that later bins need not wait.

        Raises: ValueError with the remedy.
        """
        if self.seconds > bin_us / 2_000_000:
            raise ValueError(
                f"the bin that completes a window may need {self.window_draws[1]:,} noise draws and "
                f"{self.seconds:,.1f} s of a bin of {bin_us / 1_000_000:g} s; at most half of it: fewer keys "
                "or buckets, longer bins, or another mechanism (identity and cdf_tree are quick)"
            )


def all_different(design: WindowDesign) -> Int64Array:
    """Return a histogram whose counts all differ by more than the noise; neighbours differ by much more."""
    ranks = np.argsort(np.modf(np.arange(design.buckets) * _GOLDEN)[0])
    apart = min(math.ceil(_APART / design.epsilon), LARGEST_TOTAL // design.buckets**2)
    return np.asarray(ranks * max(apart, 1), dtype=np.int64)


def _trial(design: WindowDesign, counts: Int64Array, cpu_seconds: Callable[[], float]) -> tuple[int, float]:
    """Return how many draws of noise one histogram needed, and its computing time in seconds."""
    noise, start = CountedNoise(0), cpu_seconds()
    try:
        design.release_histogram(counts, noise)
    except ValueError as refusal:
        raise ValueError(f"mechanism: {design.mechanism}: {refusal}") from None
    return noise.draws, cpu_seconds() - start
