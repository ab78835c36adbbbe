"""Trees of noisy counts over the bins: H, H-bar and HB, and the measured tree that other mechanisms use."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.base import HistogramRelease, Request
from dphist.mechanisms.measured_runs import MeasuredRuns
from dphist.mechanisms.trees.weighted_tree import IntervalTree, least_squares, range_variance


@dataclass(frozen=True, eq=False)
class MeasuredTree:
    """A measured tree: its nodes' noisy values and weights, and the variance of a node of weight 1."""

    tree: IntervalTree
    noisy: list[FloatArray]
    weights: list[FloatArray]
    unit_variance: float

    def solve(self) -> list[FloatArray]:
        """Return the least-squares values of all nodes, leaves first."""
        return least_squares(self.tree, self.noisy, self.weights)

    def variance(self, ranges: Int64Array | FloatArray) -> FloatArray:
        """Return the variance of ``solve``'s estimate of each range, (m, 2), whole leaves or parts."""
        return self.unit_variance * range_variance(self.tree, self.weights, *ranges.T)

    def runs(self) -> Iterator[MeasuredRuns]:
        """Yield each level's measured nodes as runs of leaves, with their values and variances."""
        width = 1
        for level, (noisy, weights) in enumerate(zip(self.noisy, self.weights, strict=True)):
            nodes = np.flatnonzero(weights)
            ends = np.minimum((nodes + 1) * width, self.tree.size)
            yield MeasuredRuns(nodes * width, ends, noisy[nodes], self.unit_variance / weights[nodes])
            width *= self.tree.fans[level] if level < len(self.tree.fans) else 1


def measure_tree(
    request: Request, tree: IntervalTree, leaves: Int64Array, parts: Sequence[Int64Array], epsilon: Fraction
) -> MeasuredTree:
    """Measure every node v with a part of epsilon in proportion to its integer ``parts[v]``.

    Guarantee: epsilon-DP. The integers parts[v] * count[v] are measured with one scale, total / epsilon. Here
        total is the largest sum of parts from a leaf to the root, which is the largest L1 change by one
        event. Nodes with part 0 are not measured.
    Args: leaves, exact counts of shape (tree.size,); parts, one array per level, leaves first.
    Cost: O(nodes); one draw of noise for each measured node, in one vector.
    Source: Li et al. (2014), section 4, in integers: their scaling c_v is parts[v] / total.
    """
    exact = np.concatenate([part * total for part, total in zip(parts, tree.totals(leaves), strict=True)])
    measured = np.concatenate(parts) > 0
    values = np.zeros(exact.size)
    scale = largest_path(tree, parts) / epsilon
    values[measured], unit_variance = request.measure_with_variance(exact[measured], scale)
    levels = np.split(values, np.cumsum(tree.sizes)[:-1])
    return MeasuredTree(
        tree=tree,
        noisy=[value / np.maximum(part, 1) for value, part in zip(levels, parts, strict=True)],
        weights=[part.astype(np.float64) ** 2 for part in parts],
        unit_variance=unit_variance,
    )


def largest_path(tree: IntervalTree, parts: Sequence[Int64Array]) -> int:
    """Return the largest sum of parts over all paths from a leaf to the root."""
    path = parts[-1]
    for level in range(len(tree.sizes) - 2, -1, -1):
        path = parts[level] + tree.to_children(level, path)
    return int(path.max())


def level_parts(tree: IntervalTree, levels: Sequence[int] | Int64Array) -> list[Int64Array]:
    """Return the parts of all nodes, given one part per level, leaves first."""
    return [np.full(size, part, dtype=np.int64) for size, part in zip(tree.sizes, levels, strict=True)]


def equal_parts(tree: IntervalTree, *, root: bool) -> list[Int64Array]:
    """Return part 1 for every node. Without ``root`` the root gets 0, unless it is the only node."""
    above = len(tree.sizes) - 1
    return level_parts(tree, [1] * above + [int(root or not above)])


def consistent_release(request: Request, measured: MeasuredTree, **published: FloatArray) -> HistogramRelease:
    """Return the release of a measured tree over the bins: least-squares counts and their exact variance."""
    return request.release(measured.solve()[0], variance=measured.variance, published=published)


def h(request: Request, *, branching: int = 2) -> HistogramRelease:
    """Measure every node of a tree and answer a range by the fewest nodes that cover it exactly (H~).

    Guarantee: epsilon-DP. One event changes one node of each of the tree's levels, root included, by one, so
        the noise has scale levels / epsilon. Unbiased; the variance of a range is the number of its nodes
        times the variance of one draw. A range's answer may differ from the sum of its parts' answers.
    Cost: O(n) draws; O(log n) per range.
    Source: Hay et al. (2010), section 4.
    """
    tree, measured = _measured_equally(request, branching, root=True)

    def variance(ranges: Int64Array) -> FloatArray:
        nodes = sum((b - a for _, a, b in fewest_nodes(tree, ranges)), np.zeros(len(ranges), dtype=np.int64))
        return np.asarray(measured.unit_variance * nodes)

    return request.release(
        measured.noisy[0],
        answer=lambda ranges: _sum_of_fewest_nodes(tree, measured.noisy, ranges),
        variance=variance,
        published={"nodes": np.concatenate(measured.noisy)},
    )


def h_bar(request: Request, *, branching: int = 2) -> HistogramRelease:
    """Measure every node of a tree and make the tree consistent by least squares (H-bar).

    Guarantee: epsilon-DP, as ``h``: the rest is post-processing. Answers are the best linear unbiased
        estimates of ranges from these nodes; their variance is exact.
    Source: Hay et al. (2010), theorems 3 and 4.
    """
    _, measured = _measured_equally(request, branching, root=True)
    return consistent_release(request, measured, nodes=np.concatenate(measured.noisy))


def h_bar_nonnegative(request: Request, *, branching: int = 2, round_counts: bool = True) -> HistogramRelease:
    """Run H-bar, then set every subtree whose estimate is not above zero to zero.

    Guarantee: epsilon-DP, as ``h``: the rest is post-processing. Biased, but far more accurate on sparse
        data. Nodes are never negative, and whole if rounded. A range is answered by the fewest nodes that
        cover it: a sum of many bins would add up the bias of the bins that were set to zero.
    Cost: O(n); O(log n) per range.
    Source: Hay et al. (2010), section 4.2.
    """
    tree, measured = _measured_equally(request, branching, root=True)
    estimates = measured.solve()
    kept = [estimates[-1] > 0]
    for level in range(len(tree.sizes) - 2, -1, -1):
        kept.append(tree.to_children(level, kept[-1]) & (estimates[level] > 0))
    nodes = [np.where(keep, values, 0.0) for keep, values in zip(kept[::-1], estimates, strict=True)]
    if round_counts:
        nodes = [np.rint(level) for level in nodes]
    return request.release(
        nodes[0],
        answer=lambda ranges: _sum_of_fewest_nodes(tree, nodes, ranges),
        published={"nodes": np.concatenate(measured.noisy)},
    )


def hb(request: Request, *, branching: int | None = None) -> HistogramRelease:
    """Run H-bar with the best branching for the average range, without measuring the root (HB).

    Guarantee: epsilon-DP; one event changes one node of each measured level by one. Answers are the best
        linear unbiased estimates of ranges; their variance is exact.
    Source: Qardaji, Yang, Li (2013), equation 3.
    """
    chosen = best_branching(request.counts.size) if branching is None else branching
    _, measured = _measured_equally(request, chosen, root=False)
    return consistent_release(request, measured, nodes=np.concatenate(measured.noisy))


def best_branching(bins: int) -> int:
    """Return the branching b, with its least height h, that minimises (b - 1) h^3 - 2 (b + 1) h^2 / 3.

    This is proportional to the mean variance over all ranges of a full tree. For each height, the smallest
    branching that covers the bins is best.

    >>> best_branching(4096), best_branching(17), best_branching(1)
    (16, 17, 2)
    """
    best, least = 2, None
    for height in range(1, max(2, bins.bit_length() + 1)):
        branching = least_branching(bins, height)
        error = Fraction((branching - 1) * height**3) - Fraction(2 * (branching + 1) * height**2, 3)
        if least is None or error < least:
            best, least = branching, error
    return best


def least_branching(leaves: int, height: int) -> int:
    """Return the least branching, 2 at least, of a tree of this height over the leaves.

    >>> least_branching(4096, 3), least_branching(4097, 3), least_branching(1, 1)
    (16, 17, 2)
    """
    branching: int = max(2, round(leaves ** (1 / height)) - 1)
    while branching**height < leaves:
        branching += 1
    return branching


def fewest_nodes(tree: IntervalTree, ranges: Int64Array) -> Iterator[tuple[int, Int64Array, Int64Array]]:
    """Yield runs (level, first, end) of nodes, two per level, that cover each range with the fewest nodes."""
    first, end = ranges.T
    for level, size in enumerate(tree.sizes):
        fan = tree.fans[level] if size > 1 else 2
        above_first = -(-first // fan)
        # A last node with fewer children is still whole where the range reaches the end of the level.
        above_end = np.where(end == size, -(-end // fan), end // fan)
        rises = (above_first < above_end) & (size > 1)
        yield level, first, np.where(rises, above_first * fan, end)
        yield level, np.where(rises, np.minimum(above_end * fan, end), end), end
        first, end = np.where(rises, above_first, 0), np.where(rises, above_end, 0)


def _sum_of_fewest_nodes(tree: IntervalTree, nodes: list[FloatArray], ranges: Int64Array) -> FloatArray:
    prefixes = [np.concatenate(([0.0], np.cumsum(level))) for level in nodes]
    answers = np.zeros(len(ranges))
    for level, first, end in fewest_nodes(tree, ranges):
        answers += prefixes[level][end] - prefixes[level][first]
    return answers


def _measured_equally(request: Request, branching: int, *, root: bool) -> tuple[IntervalTree, MeasuredTree]:
    tree = IntervalTree(request.counts.size, branching)
    epsilon = request.ledger.spend_rest("nodes")
    return tree, measure_tree(request, tree, request.counts, equal_parts(tree, root=root), epsilon)
