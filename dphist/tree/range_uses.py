"""How much each level of a level-uniform tree counts in the error of a workload, for many trees at once.

On a tree that the horizon does not cut off, the mean squared error is a sum over levels of a number of
``uses`` times the variance from below. Notation: W_i bins under a node of level i, k_i children into level i.

Anticipating: with A_i the mean over questions of sum over nodes of (part of the node in the question)^2,
level 1 is used A_1 times and level i A_i - k_i A_{i-1} times.

Causal, when the last bin closes: a bin a with d bins from it to the end of its level-(i-1) root's part uses
level i  g + beta^2 - (g + beta)^2 / k_i  times, g whole siblings after it and beta the part of its own node;
from the root's end on, the digits of the bins that are left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dphist.tree.anticipation import anticipating_uses
from dphist.workloads import Workload, WorkloadPart

FloatArray = NDArray[np.float64]
Int64Array = NDArray[np.int64]


def workload_uses(branchings: Int64Array, horizon: int, workload: Workload, anticipating: bool) -> FloatArray:
    """Return how much each level's variance from below counts in a workload's mean squared error.

    Guarantee: exact for prefixes of a causal release; for the rest where the horizon is a multiple of the
        bins under a top-level node, and close elsewhere (causal windows: up to their share of the epoch).
    Args: branchings of shape (trees, height), root to leaf.
    Returns: shape (trees, height).
    """
    return np.asarray(
        sum(
            float(weight) * _part_uses(branchings, horizon, part, anticipating)
            for part, weight in workload.parts
        )
    )


def mean_digits(branchings: Int64Array, horizon: int) -> FloatArray:
    """Return ``TreeShape.mean_digits`` of many trees at once, shape (trees, height)."""
    widths = widths_of(branchings)
    periods, rest = np.divmod(horizon + 1, widths * branchings)
    # The top level's digit does not wrap around at t = capacity.
    periods[:, 0], rest[:, 0] = 0, horizon + 1
    blocks, partial = np.divmod(rest, widths)
    pairs = periods * (branchings * (branchings - 1.0) / 2.0) + blocks * (blocks - 1.0) / 2.0
    return np.asarray((widths * pairs + partial * blocks) / horizon)


def widths_of(branchings: Int64Array) -> Int64Array:
    """Return the bins under a node of each measured level, shape (trees, height)."""
    widths = np.ones_like(branchings)
    widths[:, :-1] = np.cumprod(branchings[:, :0:-1], axis=1)[:, ::-1]
    return widths


def _part_uses(branchings: Int64Array, horizon: int, part: WorkloadPart, anticipating: bool) -> FloatArray:
    if part.question == "prefix":
        return (anticipating_uses if anticipating else mean_digits)(branchings, horizon)
    if part.question == "ranges":
        return (_anticipating_ranges if anticipating else _causal_ranges)(branchings, horizon)
    windows = _anticipating_windows if anticipating else _causal_windows
    return windows(branchings, horizon, part.bins)


def _from_overlaps(branchings: Int64Array, overlaps: FloatArray) -> FloatArray:
    """Turn A_i, per level, into uses."""
    uses = overlaps.copy()
    uses[:, 1:] -= branchings[:, 1:] * overlaps[:, :-1]
    return uses


def _anticipating_ranges(branchings: Int64Array, horizon: int) -> FloatArray:
    # With P_t a node's bins before t: summed over a < b, (P_b - P_a)^2 is (T + 1) sum P^2 - (sum P)^2.
    width = widths_of(branchings).astype(np.float64)
    nodes = horizon / width
    later = nodes * (nodes - 1.0) / 2.0
    once = width * (width + 1.0) / 2.0
    squares = nodes * _squares(width) + later * width**3
    squared_sums = (
        nodes * once**2
        + 2.0 * once * width**2 * later
        + width**4 * (nodes - 1.0) * nodes * (2.0 * nodes - 1.0) / 6.0
    )
    pairs = horizon * (horizon + 1.0) / 2.0
    return _from_overlaps(branchings, ((horizon + 1.0) * squares - squared_sums) / (pairs * width**2))


def _anticipating_windows(branchings: Int64Array, horizon: int, bins: int) -> FloatArray:
    widths = widths_of(branchings)
    width = widths.astype(np.float64)
    short, long = np.minimum(width, bins), np.maximum(width, bins)
    everywhere = horizon / width * (2.0 * _squares(short - 1.0) + (long - short + 1.0) * short**2)
    # Windows that reach over an edge of the epoch are prefixes and suffixes of 1..bins - 1 bins.
    whole, part = np.divmod(bins, widths)
    full_periods = whole * (whole - 1.0) / 2.0 * width + whole * part
    outside = full_periods * width**2 + whole * _squares(width - 1.0) + _squares(part - 1.0)
    overlaps = (everywhere - 2.0 * outside) / ((horizon - bins + 1.0) * width**2)
    return _from_overlaps(branchings, overlaps)


def _causal_ranges(branchings: Int64Array, horizon: int) -> FloatArray:
    width = widths_of(branchings).astype(np.float64)
    factors = branchings.astype(np.float64)
    factors[:, 0] = horizon / width[:, 0]
    uses = np.zeros_like(width)
    # Means over all bins of a node: beta^2, and what a path below a root uses.
    squares = _squares(width) / width**3
    siblings = (factors - 1.0) / 2.0
    paths = siblings + squares
    paths[:, 1:] -= factors[:, 1:] * squares[:, :-1]
    roots = width * siblings
    for level in range(width.shape[1]):
        # Pairs (a, b), per bin a, of which a's root is of this level.
        pairs = roots[:, level] + (level == 0)
        uses[:, level] += pairs * squares[:, level]
        uses[:, level] += roots[:, level] * (factors[:, level] - 2.0) / 3.0 + (level == 0) * siblings[:, 0]
        uses[:, level + 1 :] += pairs[:, np.newaxis] * paths[:, level + 1 :]
        uses[:, level + 1 :] += roots[:, level : level + 1] * siblings[:, level + 1 :]
    return uses / ((horizon + 1.0) / 2.0)


def _causal_windows(branchings: Int64Array, horizon: int, bins: int) -> FloatArray:
    """Take a as uniform over the epoch: windows that would reach beyond its end are not left out."""
    widths = widths_of(branchings)
    width = widths.astype(np.float64)
    above = widths * branchings
    trees, height = widths.shape
    # The first level whose nodes are not longer than the window.
    first = (widths > bins).sum(axis=1)
    level = np.arange(height)
    uses = np.zeros((trees, height))
    # A taller root: the window starts in its last ``bins`` bins.
    is_taller = level < first[:, np.newaxis]
    path = _squares(float(bins)) / bins / width**2
    is_root = bins / width - np.where(level > 0, bins / above, 0.0)
    is_below = np.where(level > 0, bins / above * (1.0 - 1.0 / branchings), 0.0)
    uses += np.where(is_taller, (is_root + is_below) * path, 0.0)
    rows = np.arange(trees)
    taller = np.where(first > 0, bins / above[rows, first], 0.0)[:, np.newaxis]
    uses += np.where(is_taller, 0.0, taller / bins * _suffix_uses(widths, above, branchings, np.int64(bins)))
    # A root of that first level: d bins of it, then the digits of what is left of the window.
    own, k = widths[rows, first], branchings[rows, first]
    whole, rest = np.divmod(bins, own)
    early = np.where(first > 0, (k - 1.0 - whole) / k, 1.0)
    late = np.where(first > 0, (k - whole + 0.0) / k, 1.0)
    head, body = _squares(rest + 0.0), _squares(own + 0.0)
    at_root = early * (head / own**2 + rest * whole) + late * (
        (body - head) / own**2 + (own - rest) * (whole - 1.0)
    )
    uses[rows, first] += at_root / own
    early, late, scale = (column[:, np.newaxis] for column in (early, late, own + 0.0))
    heads = _suffix_uses(widths, above, branchings, rest[:, np.newaxis])
    bodies = _suffix_uses(widths, above, branchings, own[:, np.newaxis])
    below = (early * heads + late * (bodies - heads)) / scale
    uses += np.where(level > first[:, np.newaxis], below, 0.0)
    return uses


def _suffix_uses(
    widths: Int64Array, above: Int64Array, branchings: Int64Array, count: Int64Array | np.int64
) -> FloatArray:
    """Sum over x < count what a path with x + 1 bins left uses of each level, and the digit of x there."""
    whole, part = np.divmod(count, above)
    blocks, bins = np.divmod(part, widths)
    digits = whole * widths * (branchings * (branchings - 1.0) / 2.0)
    digits = digits + widths * (blocks * (blocks - 1.0) / 2.0) + bins * blocks
    parts = _remainder_squares(count, widths) - _remainder_squares(count, above) / branchings
    return np.asarray(2.0 * digits + parts / (widths + 0.0) ** 2)


def _remainder_squares(count: Int64Array | np.int64, period: Int64Array) -> FloatArray:
    """Sum ((x mod period) + 1)^2 over x < count."""
    whole, part = np.divmod(count, period)
    return np.asarray(whole * _squares(period + 0.0) + _squares(part + 0.0))


def _squares(n: Any) -> Any:
    """Sum 1^2 + ... + n^2, of a number or an array of doubles."""
    return n * (n + 1.0) * (2.0 * n + 1.0) / 6.0
