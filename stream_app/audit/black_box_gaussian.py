"""Black box for Gaussian noise: a statistic of the outputs, above or below a threshold.

Between two neighbouring logs the most powerful statistic is the outputs' inner product with their expected
difference. Under the two logs it is normal with variance 1 and means 0 and mu, so how often it passes mu / 2
bounds mu on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from dphist.arrays import FloatArray
from dphist.audit import mu_bounds
from dphist.caps import Caps
from dphist.noise import GaussianSource
from dphist.toeplitz import ToeplitzCounter, ToeplitzDesign
from stream_app.audit.black_box import ALPHA, SLACK

_COLUMNS = 20_000  # independent copies of a column that run at once
_MOST_LOOKS = 8  # each with twice as many runs
_DISTANCE = 2.0  # logs differ by so many events that mu is about this


@dataclass(frozen=True, slots=True)
class CountedGaussian:
    """The numbers of outputs that were counted.

    Args:
        events: by how many events of one column, all in one bin, the logs differ.
        stated: the mu that the design states for so many events.
        low, high: bounds on it, from all runs.
        runs: of the mechanism.
    """

    events: int
    stated: float
    low: float
    high: float
    runs: int

    @property
    def passed(self) -> bool:
        """Whether the bounds hold the stated mu, and refute one that is 5 % smaller or larger."""
        return self.stated / SLACK < self.low <= self.stated <= self.high < self.stated * SLACK


def count_gaussian_outputs(design: ToeplitzDesign, noise: GaussianSource, seed: int) -> CountedGaussian:
    """Run a mechanism on two neighbouring logs until the bounds on mu are close enough.

    The logs differ in the first bin, where a difference moves most outputs.
    Args: a design with one window, in which a unit counts anew only with the epoch; seed, of the coin that
        chooses the log of each run.
    """
    of_one_event = float(design.mu) / math.sqrt(_squared_events(design))
    events = max(1, round(_DISTANCE / of_one_event))
    change = design.strategy.coefficients()[: design.horizon] * (events / float(design.sigma))
    threshold = float(np.linalg.norm(change)) / 2
    above = np.zeros((2, 2), np.int64)  # by log: runs above the threshold, all runs
    coin = np.random.default_rng(seed)
    for look in count(1):
        while above[:, 1].sum() < _COLUMNS * 2**look:
            for log, statistic in enumerate(_statistics(design, events, change, noise, coin)):
                above[log] += int((statistic > threshold).sum()), len(statistic)
        (theirs, their_runs), (ours, our_runs) = above.tolist()
        # Each look may be wrong with half the probability of the look before, so all together with ALPHA.
        low, high = mu_bounds(ours, our_runs, theirs, their_runs, ALPHA / 2**look)
        found = CountedGaussian(events, events * of_one_event, low, high, our_runs + their_runs)
        if found.passed or not low <= found.stated <= high or look == _MOST_LOOKS:
            break
    return found


def _squared_events(design: ToeplitzDesign) -> int:
    """Return the squared norm of the largest change of one unit's counts."""
    return design.caps.l2_squared * (2 if design.neighbours == "substitute" else 1)


def _statistics(
    design: ToeplitzDesign,
    events: int,
    change: FloatArray,
    noise: GaussianSource,
    coin: np.random.Generator,
) -> Iterator[FloatArray]:
    """Yield the statistics of the runs with the first log, then of those with the second."""
    first = int(coin.binomial(_COLUMNS, 0.5))
    # Columns are independent. One event a unit needs less noise than there is, so any number of columns may.
    copies = replace(design, width=_COLUMNS, caps=Caps(max_events=1), neighbours="add_remove")
    counts = np.zeros((design.horizon, _COLUMNS), np.int64)
    counts[0, first:] = events
    outputs = ToeplitzCounter(copies).close(counts, noise)
    statistic = change @ (outputs * float(design.step / design.sigma)) / np.linalg.norm(change)
    yield statistic[:first]
    yield statistic[first:]
