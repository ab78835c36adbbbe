"""Black box: counts outputs of the mechanism, without looking into it.

For discrete Laplace noise: outputs in the set S = "no node that counts the changed bin is above its value in
the first log" are likelier under the first log by exactly e^loss, the most that any set allows. The stated
loss must be kept, and the loss divided by 1.05 must be refuted by the same outputs: else the test would not
notice noise that is 5 % too small.

For Gaussian noise: between two neighbouring logs the most powerful statistic is the outputs' inner product
with their expected difference. Under the two logs it is normal with variance 1 and means 0 and mu, so how
often it passes mu / 2 bounds mu on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count

import numpy as np

from dphist import AnticipatingCounter, TreeCounter
from dphist.arrays import FloatArray, Int64Array
from dphist.audit import LossBounds, Sequential, Verdict, loss_bounds, mu_bounds
from dphist.caps import Caps
from dphist.noise import GaussianSource, NoiseSource
from dphist.toeplitz import ToeplitzCounter, ToeplitzDesign
from dphist.tree.design import TreeDesign

SLACK = 1.05
ALPHA = 1e-9
_COLUMNS = 20_000  # independent copies of the mechanism that run at once
_MOST_RUNS = 60_000_000  # for discrete Laplace noise
_MOST_LOOKS = 8  # for Gaussian noise, each with twice as many runs
_DISTANCE = 2.0  # logs differ by so many events that mu is about this


@dataclass(frozen=True, slots=True)
class Counted:
    """The numbers of outputs that were counted."""

    units: int  # how many units the logs differ by, so that the loss is near 1 and few runs are enough
    stated: Fraction  # the loss that is stated for so many units
    bounds: LossBounds  # on the loss, from all runs
    verdict: Verdict | None  # on the stated loss; None if the runs were not enough
    tighter: Verdict | None  # on the stated loss divided by 1.05, which must be exceeded
    runs: int  # of the whole mechanism

    @property
    def passed(self) -> bool:
        """Whether the stated loss is kept, and by noise that is not smaller than stated."""
        return self.verdict == "kept" and self.tighter == "exceeded"


def count_outputs(
    designs: Sequence[TreeDesign], stated: Fraction, bin: int, noise: NoiseSource, seed: int
) -> Counted:
    """Run trees over time on two neighbouring logs until ``verdict`` and ``tighter`` are known.

    Args: designs, the trees that count the same unit; stated, the epsilon of one unit, whose counts are all
        in one ``bin``; seed, of the coin that chooses the log of each run.
    """
    units = max(1, round(1 / stated))
    epsilon = stated * units
    kept, tighter = (Sequential(float(epsilon / part), SLACK, ALPHA) for part in (1, Fraction(SLACK)))
    hits = neighbour_hits = runs = 0
    verdict = tight = None
    for ours, theirs in _batches(designs, units, bin, noise, seed):
        hits, neighbour_hits, runs = hits + ours, neighbour_hits + theirs, runs + _COLUMNS
        verdict, tight = kept.take(ours, theirs), tighter.take(ours, theirs)
        if (verdict and tight) or runs >= _MOST_RUNS:
            break
    return Counted(units, epsilon, loss_bounds(hits, neighbour_hits, ALPHA), verdict, tight, runs)


def _batches(
    designs: Sequence[TreeDesign], units: int, bin: int, noise: NoiseSource, seed: int
) -> Iterator[tuple[int, int]]:
    """Yield how many runs of each log end in S."""
    coin = np.random.default_rng(seed)
    while True:
        first = int(coin.binomial(_COLUMNS, 0.5))  # columns that run the first log; the others the second
        within = np.ones(_COLUMNS, dtype=np.bool_)
        for design in designs:
            counts = np.zeros((design.horizon, _COLUMNS), np.int64)
            counts[bin, first:] = units * design.sensitivity
            for value in _nodes_over(design, counts, bin, noise):
                within &= value <= 0
        yield int(within[:first].sum()), int(within[first:].sum())


def _nodes_over(design: TreeDesign, counts: Int64Array, bin: int, noise: NoiseSource) -> Iterator[Int64Array]:
    """Yield the released values of the nodes that count a bin, shape (columns,)."""
    counter = (AnticipatingCounter if design.anticipates else TreeCounter)(design, noise, counts.shape[1])
    releases = counter.push_many(counts)
    for level in releases.levels:
        index = bin // design.shape.widths[level.level] - level.first_index
        if 0 <= index < len(level.values):
            yield level.values[index]


@dataclass(frozen=True, slots=True)
class CountedGaussian:
    """The numbers of outputs that were counted."""

    events: int  # by how many events of one column, all in one bin, the logs differ
    stated: float  # the mu that the design states for so many events
    low: float  # bounds on it, from all runs
    high: float
    runs: int  # of the mechanism

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
