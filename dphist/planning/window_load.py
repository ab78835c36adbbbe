"""What windows ask of the machine that releases them, found by trying the mechanism out.

How often a mechanism draws, and how long it computes, may depend on the counts it sees. Two histograms that
are no one's bound what streams hold: an empty one, and one in which all counts differ, on which whatever
looks for runs of equal counts, or for the worst ones, has most to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import Int64Array
from dphist.mechanisms.base import LARGEST_TOTAL
from dphist.noise import Scale, SeededNoise
from dphist.planning.product import DRAWS_PER_SECOND
from dphist.windows.design import WindowDesign

# Fractional parts of its multiples are spread evenly, neighbours far apart.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
# Counts that differ by so many scales of the noise are told apart by every mechanism.
_APART = 10


class CountedNoise:
    """Seeded noise that counts its draws, one for each score of a selection. It protects nobody."""

    private = False

    def __init__(self, seed: int) -> None:
        self.draws = 0
        self._noise = SeededNoise(seed)

    def discrete_laplace(self, scale: Scale, shape: int | tuple[int, ...]) -> Int64Array:
        """As ``SeededNoise.discrete_laplace``."""
        self.draws += math.prod((shape,) if isinstance(shape, int) else shape)
        return self._noise.discrete_laplace(scale, shape)

    def select(self, scores: NDArray[np.integer[Any]], scale: Scale) -> int:
        """As ``SeededNoise.select``."""
        self.draws += len(scores)
        return self._noise.select(scores, scale)


@dataclass(frozen=True)
class WindowLoad:
    """What the windows of an epoch ask of a machine, beside what their tree does.

    ``window_draws``: noises drawn when a window closes, over an empty one and at most; ``seconds``: how long
    the release of one takes at most, drawing and computing; ``released_bytes``: what an epoch of them keeps.
    """

    bins: int
    window_draws: tuple[int, int]
    seconds: float
    released_bytes: int

    @classmethod
    def of(cls, design: WindowDesign, cpu_seconds: Callable[[], float]) -> WindowLoad:
        """Try the mechanism out over two histograms that are no one's.

        Args: design; cpu_seconds, a clock of the processor time that the caller spends: what a mechanism
            computes is measured where it will run, what it draws is counted and costs as in ``Load``.
        Raises: ValueError for what the mechanism cannot do, as it words it.
        Cost: three times that of one histogram, with seeded noise.
        """
        nothing = np.zeros(design.buckets, np.int64)
        _trial(design, nothing, cpu_seconds)  # loads what the mechanism needs: no window waits for that
        trials = [_trial(design, counts, cpu_seconds) for counts in (nothing, all_different(design))]
        draws = [design.histograms * drawn for drawn, _ in trials]
        return cls(
            design.bins,
            (draws[0], max(draws)),
            max(design.histograms * (drawn / DRAWS_PER_SECOND + spent) for drawn, spent in trials),
            8 * design.cells * (design.time.horizon // design.bins),
        )

    def check(self, bin_us: int) -> None:
        """Refuse windows whose release would take more than half a bin: later bins would wait for it.

        Raises: ValueError with what to change.
        """
        if self.seconds > bin_us / 2_000_000:
            raise ValueError(
                f"the bin that completes a window may need {self.window_draws[1]:,} noise draws and "
                f"{self.seconds:,.1f} s of a bin of {bin_us / 1_000_000:g} s; at most half of it: fewer keys "
                "or buckets, longer bins, or another mechanism (identity and cdf_tree are quick)"
            )


def all_different(design: WindowDesign) -> Int64Array:
    """Return a histogram of counts that all differ, neighbours widely, and by more than the noise."""
    ranks = np.argsort(np.modf(np.arange(design.buckets) * _GOLDEN)[0])
    apart = min(math.ceil(_APART / design.epsilon), LARGEST_TOTAL // design.buckets**2)
    return np.asarray(ranks * max(apart, 1), dtype=np.int64)


def _trial(design: WindowDesign, counts: Int64Array, cpu_seconds: Callable[[], float]) -> tuple[int, float]:
    """Return how many noises one histogram drew and how long it computed."""
    noise, start = CountedNoise(0), cpu_seconds()
    try:
        design.release_histogram(counts, noise)
    except ValueError as refusal:
        raise ValueError(f"mechanism: {design.mechanism}: {refusal}") from None
    return noise.draws, cpu_seconds() - start
