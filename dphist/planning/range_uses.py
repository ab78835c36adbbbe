"""The weight of each level of a level-uniform tree in the error of a workload, for many trees at once.

On a tree that the horizon does not cut off, the mean squared error is a sum over levels: a level's variance
from below (see ``dphist.tree.range_error``), times how often the workload ``uses`` the level. Notation: a
node of level i covers W_i bins; a node of level i - 1 has k_i children.

Anticipating: with A_i the mean over questions of sum over nodes of (part of the node in the question)^2,
level 1 is used A_1 times and level i A_i - k_i A_{i-1} times.

Causal, when the last bin closes: let a question start at bin a, and let a's root be the highest complete node
that contains a. Let beta be the part, from a on, of the node of level i that contains a. The root's level is
used beta^2 times. Each level i below it is used g + beta^2 - (g + beta)^2 / k_i times, if g siblings of the
node follow it inside their parent. After the root's end, each level is used d times: d is the
level's digit of the number of remaining bins.

A tree may have a root of the whole epoch: a top node that reaches to the horizon or beyond. In an
anticipating release it is treated as a node of exactly the epoch's bins, possibly with a fraction of a child.
In a causal release it matters only if the epoch's last bin completes it, for questions that end there.
"""

from typing import Any

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.tree.range_error import anticipating_uses
from dphist.workloads import Workload, WorkloadPart


def workload_uses(branchings: Int64Array, horizon: int, workload: Workload, anticipating: bool) -> FloatArray:
    """Return how often a workload uses each level: the weights of the variances from below in its error.

    Guarantee: exact for prefixes of a causal release. For other questions the uses are exact if the horizon
        is a multiple of the bins under a top-level node, and nearly exact otherwise. For causal windows the
        relative error is about the part of the epoch that a window covers.
    Args: branchings of shape (trees, height), root to leaf. Either all trees have a root of the epoch,
        complete or not, or none has.
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
    periods = widths * branchings
    periods[:, 0] = horizon + 2  # the top level's digit does not wrap around at t = capacity
    return _digit_sums(widths, branchings, periods, horizon + 1) / horizon


def _digit_sums(
    widths: Int64Array, branchings: Int64Array, period: Int64Array, count: Int64Array | int
) -> FloatArray:
    """Return, per level, the sum of the digits of x over 0 <= x < count.

    Args: period, the number of bins after which the digits of a level repeat.
    """
    periods, rest = np.divmod(count, period)
    blocks, partial = np.divmod(rest, widths)
    pairs = periods * (branchings * (branchings - 1.0) / 2.0) + blocks * (blocks - 1.0) / 2.0
    return np.asarray(widths * pairs + partial * blocks)


def widths_of(branchings: Int64Array) -> Int64Array:
    """Return the bins under a node of each measured level, shape (trees, height)."""
    widths = np.ones_like(branchings)
    widths[:, :-1] = np.cumprod(branchings[:, :0:-1], axis=1)[:, ::-1]
    return widths


def children_within(branchings: Int64Array, horizon: int) -> FloatArray:
    """Return the number of children per node, root to leaf, with a root cut off at the end of the epoch.

    >>> children_within(np.array([[2, 3, 10], [3, 2, 5]]), 25).tolist()
    [[1.0, 2.5, 10.0], [2.5, 2.0, 5.0]]
    """
    widths = np.minimum(widths_of(branchings), horizon)
    above = np.concatenate([np.full((len(widths), 1), horizon), widths[:, :-1]], axis=1)
    return np.asarray(above / widths)


def _part_uses(branchings: Int64Array, horizon: int, part: WorkloadPart, anticipating: bool) -> FloatArray:
    if anticipating:
        return _anticipating_uses(branchings, horizon, part)
    if part.question == "prefix":
        return mean_digits(branchings, horizon)
    widths = widths_of(branchings)
    if branchings.shape[1] == 1 or (widths[:, 0] < horizon).all():
        return _causal_uses(branchings, horizon, part)
    if part.question == "ranges" and (widths[:, 0] == horizon).all():
        return _causal_ranges(branchings, horizon)
    below = np.zeros(branchings.shape)
    below[:, 1:] = _causal_uses(branchings[:, 1:], horizon, part)
    if part.question == "ranges":
        return below
    # Only the last window can use a complete root.
    last = np.where(widths[:, :1] == horizon, 1.0 / (horizon - part.bins + 1.0), 0.0)
    return np.asarray((1.0 - last) * below + last * _suffix_of_root(widths, branchings, part.bins))


def _suffix_of_root(widths: Int64Array, branchings: Int64Array, bins: int) -> FloatArray:
    """Return how often the count of a complete root's last ``bins`` bins uses each level."""
    uses = np.empty(widths.shape)
    rest = np.full(len(widths), bins)
    for level in range(widths.shape[1]):
        width, k = widths[:, level], branchings[:, level] if level else 1
        whole = (rest - 1) // width
        rest = rest - whole * width
        part = rest / width
        uses[:, level] = whole + part**2 - ((whole + part) ** 2 / k if level else 0.0)
    return uses


def _causal_uses(branchings: Int64Array, horizon: int, part: WorkloadPart) -> FloatArray:
    if part.question == "ranges":
        return _causal_ranges(branchings, horizon)
    if part.bins == horizon:
        # One window, which cuts no node.
        widths = widths_of(branchings)
        above = np.concatenate([np.full((len(widths), 1), horizon + 1), widths[:, :-1]], axis=1)
        return np.asarray(horizon % above // widths, dtype=np.float64)
    return _causal_windows(branchings, horizon, part.bins)


def _anticipating_uses(branchings: Int64Array, horizon: int, part: WorkloadPart) -> FloatArray:
    children = children_within(branchings, horizon)
    if part.question == "prefix":
        return anticipating_uses(children, horizon)
    width = np.minimum(widths_of(branchings), horizon).astype(np.float64)
    if part.question == "ranges":
        overlaps = _anticipating_ranges(width, horizon)
    else:
        overlaps = _anticipating_windows(width, horizon, part.bins)
    uses = overlaps.copy()
    uses[:, 1:] -= children[:, 1:] * overlaps[:, :-1]
    # For levels under a root that the horizon cuts off, the approximation may be negative instead of zero.
    return np.maximum(uses, 0.0)


def _anticipating_ranges(width: FloatArray, horizon: int) -> FloatArray:
    """Return A_i (see the module) per level, for the workload of all ranges."""
    # With P_t a node's bins before t: summed over a < b, (P_b - P_a)^2 is (T + 1) sum P^2 - (sum P)^2.
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
    return np.asarray(((horizon + 1.0) * squares - squared_sums) / (pairs * width**2))


def _anticipating_windows(width: FloatArray, horizon: int, bins: int) -> FloatArray:
    """Return A_i (see the module) per level, for the workload of all windows of ``bins`` bins."""
    short, long = np.minimum(width, bins), np.maximum(width, bins)
    everywhere = horizon / width * (2.0 * _squares(short - 1.0) + (long - short + 1.0) * short**2)
    # A window that crosses an edge of the epoch leaves a prefix or suffix of 1..bins-1 bins inside.
    whole, part = np.divmod(float(bins), width)
    full_periods = whole * (whole - 1.0) / 2.0 * width + whole * part
    outside = full_periods * width**2 + whole * _squares(width - 1.0) + _squares(part - 1.0)
    return np.asarray((everywhere - 2.0 * outside) / ((horizon - bins + 1.0) * width**2))


def _causal_ranges(branchings: Int64Array, horizon: int) -> FloatArray:
    width = widths_of(branchings).astype(np.float64)
    factors = branchings.astype(np.float64)
    factors[:, 0] = horizon / width[:, 0]
    uses = np.zeros_like(width)
    # Means over all bins of a node: of beta^2, and of the uses of a level below the root.
    squares = _squares(width) / width**3
    siblings = (factors - 1.0) / 2.0
    paths = siblings + squares
    paths[:, 1:] -= factors[:, 1:] * squares[:, :-1]
    roots = width * siblings
    for level in range(width.shape[1]):
        # The number of pairs (a, b), per bin a, for which a's root is of this level.
        pairs = roots[:, level] + (level == 0)
        uses[:, level] += pairs * squares[:, level]
        uses[:, level] += roots[:, level] * (factors[:, level] - 2.0) / 3.0 + (level == 0) * siblings[:, 0]
        uses[:, level + 1 :] += pairs[:, np.newaxis] * paths[:, level + 1 :]
        uses[:, level + 1 :] += roots[:, level : level + 1] * siblings[:, level + 1 :]
    return uses / ((horizon + 1.0) / 2.0)


def _causal_windows(branchings: Int64Array, horizon: int, bins: int) -> FloatArray:
    """Return how often windows use each level, if windows started evenly spread over the epoch."""
    widths = widths_of(branchings)
    width = widths.astype(np.float64)
    above = widths * branchings
    trees, height = widths.shape
    # The first level whose nodes are not longer than the window.
    first = (widths > bins).sum(axis=1)
    level = np.arange(height)
    uses = np.zeros((trees, height))
    # For a taller root, the window starts in its last ``bins`` bins.
    is_taller = level < first[:, np.newaxis]
    path = _squares(float(bins)) / bins / width**2
    is_root = bins / width - np.where(level > 0, bins / above, 0.0)
    is_below = np.where(level > 0, bins / above * (1.0 - 1.0 / branchings), 0.0)
    uses += np.where(is_taller, (is_root + is_below) * path, 0.0)
    rows = np.arange(trees)
    taller = np.where(first > 0, bins / above[rows, first], 0.0)[:, np.newaxis]
    uses += np.where(is_taller, 0.0, taller / bins * _suffix_uses(widths, branchings, bins))
    # A root of that first level: the window has d bins of it, then the digits of the remaining bins.
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
    heads = _suffix_uses(widths, branchings, rest[:, np.newaxis])
    bodies = _suffix_uses(widths, branchings, own[:, np.newaxis])
    below = (early * heads + late * (bodies - heads)) / scale
    uses += np.where(level > first[:, np.newaxis], below, 0.0)
    return uses


def _suffix_uses(widths: Int64Array, branchings: Int64Array, count: Int64Array | int) -> FloatArray:
    """Return how often the last x + 1 bins of a node use each level, summed over 0 <= x < count."""
    above = widths * branchings
    parts = _remainder_squares(count, widths) - _remainder_squares(count, above) / branchings
    digits = _digit_sums(widths, branchings, above, count)
    return np.asarray(2.0 * digits + parts / (widths + 0.0) ** 2)


def _remainder_squares(count: Int64Array | int, period: Int64Array) -> FloatArray:
    """Return the sum of ((x mod period) + 1)^2 over 0 <= x < count."""
    whole, part = np.divmod(count, period)
    return np.asarray(whole * _squares(period + 0.0) + _squares(part + 0.0))


def _squares(n: Any) -> Any:
    """Return 1^2 + ... + n^2 for a number or an array of doubles."""
    return n * (n + 1.0) * (2.0 * n + 1.0) / 6.0
