"""The papers' random questions: half-open intervals of a line and rectangles of a grid, drawn from a seed."""

from __future__ import annotations

import numpy as np

from dphist.arrays import Int64Array
from dphist.noise import SeededNoise
from dphist.workloads import single_bins


def intervals_of_length(bins: int, length: int, number: int, seed: int) -> Int64Array:
    """Return intervals of one length at uniformly random places, shape (number, 2).

    >>> np.diff(intervals_of_length(10, 4, 3, seed=1)).ravel().tolist()
    [4, 4, 4]
    """
    starts = SeededNoise(seed).generator.integers(0, bins - length + 1, number)
    return np.stack([starts, starts + length], axis=1)


def uniform_intervals(bins: int, number: int, seed: int) -> Int64Array:
    """Return intervals drawn uniformly from all bins (bins + 1) / 2 possible ones, shape (number, 2)."""
    # Two different edges of the bins + 1, in order.
    draw = SeededNoise(seed).generator
    first = draw.integers(0, bins + 1, number)
    second = (first + draw.integers(1, bins + 1, number)) % (bins + 1)
    return np.stack([np.minimum(first, second), np.maximum(first, second)], axis=1)


def clustered_intervals(bins: int, number: int, deviation: float, seed: int, clusters: int = 5) -> Int64Array:
    """Return intervals [c - |X|, c + |Y|] around random centres c, with X and Y normal; bins end them.

    Args: number of intervals, divided evenly among the clusters; deviation of X and Y in bins.
    Source: Li, Hay, Miklau, Wang (2014), section 5.1.
    """
    draw = SeededNoise(seed).generator
    centres = np.repeat(draw.integers(0, bins, clusters), number // clusters)
    left, right = np.rint(np.abs(draw.normal(0.0, deviation, (2, centres.size)))).astype(np.int64)
    return np.stack([np.maximum(centres - left, 0), np.minimum(centres + right + 1, bins)], axis=1)


def workloads(bins: int, number: int, seed: int) -> dict[str, Int64Array]:
    """Return DAWA's four kinds of workload; spreads are the same parts of the bins as in the paper."""
    return {
        "identity": single_bins(bins),
        "uniform": uniform_intervals(bins, number, seed),
        "clustered": clustered_intervals(bins, number, bins / 16, seed),
        "large clustered": clustered_intervals(bins, number, bins / 4, seed),
    }


def rectangles(shape: tuple[int, int], height: int, width: int, number: int, seed: int) -> Int64Array:
    """Return rectangles of one size at uniformly random places, shape (number, 4)."""
    draw = SeededNoise(seed).generator
    top = draw.integers(0, shape[0] - height + 1, number)
    left = draw.integers(0, shape[1] - width + 1, number)
    return np.stack([top, top + height, left, left + width], axis=1)
