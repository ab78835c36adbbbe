"""The width of a simultaneous band: a quantile of the largest error among all cumulative counts.

The law of the noise is public and does not depend on the data. So the largest error over all thresholds, in
standard errors, can be simulated as often as needed. The width is an order statistic of seeded draws. Its
rank is so high that the width is below the true quantile with at most one chance in a million, for any law
(Clopper and Pearson: the number of draws below the true p-quantile is binomial).

Draws come from a table of each node's law. The law's characteristic function is known in closed form, a
bounded dither makes the law smooth, and a discrete Fourier transform gives its distribution function. The
width includes a bound on the effect of dither and table cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dphist.arrays import FloatArray
from dphist.laws.interval import LARGEST_CONFIDENCE, least_draws, order_statistic
from dphist.laws.inversion import kaiser_bessel, tail_bounds
from dphist.laws.law import LawTable, WeightedNoise
from dphist.noise import SeededNoise
from dphist.product.axis import ValueAxis

_SEED = 20130101
# More draws give a narrower band. As many are made as take a few tenths of a second, within these bounds.
_LEAST_DRAWS, _MOST_DRAWS, _NODES_DRAWN = 2**13, 2**16, 2**22
_DRAWS_PER_CHUNK = 1024
_TABLE = 2**16
# Even steps of probability at which a table is looked up, for speed.
_EVEN_STEPS = 2**17
# A node's law is cut off beyond this probability; draws that rare do not occur.
_TAIL = 1e-13
# The window's shape: its side lobes are about exp(-20).
_WINDOW = 20.0


def cumulative_stderr(axis: ValueAxis, laws: tuple[WeightedNoise, ...]) -> FloatArray:
    """Return the standard error of every unbiased cumulative count, (buckets,). Args: as ``sup_error``."""
    pairs = zip(axis.prefix_weights, laws, strict=True)
    variances = sum(law.variance * (weights**2).sum(axis=1) for weights, law in pairs)
    return np.asarray(np.sqrt(variances))


@lru_cache(maxsize=1024)
def sup_error(axis: ValueAxis, laws: tuple[WeightedNoise, ...], confidence: float) -> float:
    """Return z with P(every |error of a cumulative count| <= z * its standard error) >= confidence.

    Guarantee: over seeds, z is too small with at most one chance in 10^6. At 0.95, the expected true
        confidence exceeds 0.95 by at most 1.2 percentage points (0.4 for few buckets). Equal laws give equal
        z.
    Args: laws, of the error of each node's value, one per level of the axis, all independent.
    Raises: ValueError for a confidence outside (0, 0.999].
    Cost: O(nodes * draws), about 0.2 s for 256 buckets; cached.
    """
    if not 0.0 < confidence <= LARGEST_CONFIDENCE:
        raise ValueError(f"confidence: {confidence!r} is outside (0, {LARGEST_CONFIDENCE}]")
    stderr = cumulative_stderr(axis, laws)
    if not stderr.all():
        return 0.0  # no noise (a huge epsilon): either all nodes have noise, or none has
    tables = [NodeTable.of(law) for law in laws]
    moved = axis.prefix_bounds([table.slack for table in tables])
    draws = draws_needed(sum(axis.node_counts), confidence)
    generator = SeededNoise(_SEED).generator
    worst = []
    for start in range(0, draws, _DRAWS_PER_CHUNK):
        size = min(_DRAWS_PER_CHUNK, draws - start)
        levels = [
            table.draw(generator.random((nodes, size)))
            for table, nodes in zip(tables, axis.node_counts, strict=True)
        ]
        errors = axis.least_squares(levels).cumsum(axis=0)
        worst.append(np.abs(errors / stderr[:, np.newaxis]).max(axis=0))
    ordered = np.sort(np.concatenate(worst))
    return float(ordered[order_statistic(draws, confidence) - 1] + np.max(moved / stderr))


def draws_needed(nodes: int, confidence: float) -> int:
    """Return how often to draw all nodes, so that an order statistic of the errors bounds the quantile."""
    return max(least_draws(confidence), min(max(_NODES_DRAWN // nodes, _LEAST_DRAWS), _MOST_DRAWS))


@dataclass(frozen=True)
class NodeTable:
    """The dithered law of a node's error as a table: ``values`` at cumulative ``probabilities``, both rising.

    Args: even, the values at even steps of probability, for fast look-ups; coarse, the steps in which this
        look-up is not precise enough (in the tails and between lattice values); slack, a bound on the
        distance between a draw from the table and one from the exact law.
    """

    values: FloatArray
    probabilities: FloatArray
    even: FloatArray
    coarse: NDArray[np.bool_]
    slack: float

    @classmethod
    def of(cls, law: WeightedNoise) -> NodeTable:
        """Return the table of a law that has noise."""
        laws = LawTable.of([law])
        reach = float(tail_bounds(laws, (_TAIL,))[0][0])
        period = 2.2 * reach
        step = period / _TABLE
        dither = 1.2 * _WINDOW * step / math.pi
        theta = np.asarray(np.arange(_TABLE // 2 + 1) * (2.0 * math.pi / period), np.float64)
        decay = np.zeros_like(theta)
        for weight, copies, variance in laws.columns(len(theta)):
            decay += (copies * np.log1p(2.0 * variance * np.sin(0.5 * weight * theta) ** 2)).sum(axis=(0, 1))
        characteristic = np.exp(-decay) * kaiser_bessel(theta * dither, _WINDOW)
        density: FloatArray = np.roll(np.fft.irfft(characteristic, _TABLE), _TABLE // 2).astype(np.float64)
        cumulative = np.cumsum(np.maximum(density, 0.0))
        # Each cell is centred on a multiple of the step.
        edges = np.asarray(step * (np.arange(_TABLE) - _TABLE // 2 + 0.5), np.float64)
        inside = np.flatnonzero(np.diff(cumulative, prepend=0.0) > 0)
        values, probabilities = edges[inside], cumulative[inside] / cumulative[-1]
        even = np.interp(np.arange(_EVEN_STEPS + 1) / _EVEN_STEPS, probabilities, values)
        coarse = np.diff(even) > dither / 2.0
        return cls(values, probabilities, even, coarse, 1.5 * dither + step)

    def draw(self, uniforms: FloatArray) -> FloatArray:
        """Turn uniform numbers into draws of the law, of the same shape."""
        steps = (uniforms * _EVEN_STEPS).astype(np.intp)
        drawn, coarse = self.even[steps], self.coarse[steps]
        drawn[coarse] = np.interp(uniforms[coarse], self.probabilities, self.values)
        return np.asarray(drawn)
