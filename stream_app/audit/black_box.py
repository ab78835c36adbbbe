"""Black box: counts outputs of the mechanism, without looking into it.

For discrete Laplace noise, outputs in the set S = "no node that counts the changed bin is above its value in
the first log" are likelier under the first log by exactly e^loss, the most that any set allows. The stated
loss must be kept, and the loss divided by 1.05 must be refuted by the same outputs: else the test would not
notice noise that is 5 % too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dphist import AnticipatingCounter, TreeCounter
from dphist.arrays import Int64Array
from dphist.audit import LossBounds, Sequential, loss_bounds
from dphist.audit.odds import Verdict
from dphist.noise import NoiseSource
from dphist.tree.design import TreeDesign

SLACK = 1.05
ALPHA = 1e-9
_COLUMNS = 20_000  # independent copies of the mechanism that run at once
_MOST_RUNS = 60_000_000


@dataclass(frozen=True, slots=True)
class Counted:
    """The numbers of outputs that were counted.

    Args:
        units: how many units the logs differ by, so that the loss is near 1 and few runs are enough.
        stated: the loss that is stated for so many units.
        bounds: on the loss, from all runs.
        verdict: on the stated loss; None if the runs were not enough.
        tighter: on the stated loss divided by 1.05, which must be exceeded.
        runs: of the whole mechanism.
    """

    units: int
    stated: Fraction
    bounds: LossBounds
    verdict: Verdict | None
    tighter: Verdict | None
    runs: int

    @property
    def passed(self) -> bool:
        """Whether the stated loss is kept, and by noise that is not smaller than stated."""
        return self.verdict == "kept" and self.tighter == "exceeded"


def count_outputs(
    designs: Sequence[TreeDesign], stated: Fraction, bin: int, noise: NoiseSource, seed: int
) -> Counted:
    """Run trees over time on two neighbouring logs until both verdicts are clear.

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
