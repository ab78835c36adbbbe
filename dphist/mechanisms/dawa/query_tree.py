"""Stage 2 of DAWA: choose each tree node's part of the budget so that the workload's error is small."""

import math

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.trees.hierarchical import equal_parts, largest_path, least_branching
from dphist.mechanisms.trees.weighted_tree import IntervalTree, RangeClimb, child_sums, range_variance

# Integer parts of the budget add up to this on each root-to-leaf path; times a total of 2^42 it fits int64.
LATTICE = 2**20
TreeParts = tuple[IntervalTree, list[Int64Array]]
# Limit on a node's odds, so that some budget remains for the nodes below it.
_LARGEST_ODDS = 99.0


def best_tree(leaves: int, starts: FloatArray, ends: FloatArray) -> TreeParts:
    """Return the better tree for the workload: the paper's greedy one, or one with equal parts and no root.

    The greedy choice is not optimal: on uniform ranges over 4096 leaves, a tree of branching 16 with equal
    parts has three quarters of its variance. The choice depends on public facts only.
    Cost: O(k + m log k) for each of about log k candidates.
    """
    candidates = [greedy_tree(leaves, starts, ends)]
    for height in range(1, max(2, leaves.bit_length())):
        tree = IntervalTree(leaves, least_branching(leaves, height))
        candidates.append((tree, equal_parts(tree, root=False)))
    return min(candidates, key=lambda made: workload_variance(made[0], made[1], starts, ends))


def greedy_tree(leaves: int, starts: FloatArray, ends: FloatArray, branching: int = 2) -> TreeParts:
    """Return a tree with the paper's greedy parts, planned for the workload and for every single leaf.

    All single leaves together weigh 1 % of the workload. So even leaves that no query separates get some
    budget, and the workload's variance hardly grows.
    """
    tree = IntervalTree(leaves, branching)
    return tree, greedy_parts(tree, starts, ends, unit_weight=0.01 * starts.size / leaves)


def workload_variance(
    tree: IntervalTree, parts: list[Int64Array], starts: FloatArray, ends: FloatArray
) -> float:
    """Return the mean variance over the workload; 1 is the variance of a node that gets the whole budget."""
    weights = [part.astype(np.float64) ** 2 for part in parts]
    total = range_variance(tree, weights, starts, ends).sum()
    return float(total * largest_path(tree, parts) ** 2 / max(1, starts.size))


def greedy_parts(
    tree: IntervalTree, starts: FloatArray, ends: FloatArray, *, unit_weight: float = 0.0
) -> list[Int64Array]:
    """Return each node's part of the budget, chosen bottom-up for the workload.

    Each node q takes from the nodes below it the share lambda that minimises the variance of the queries'
    parts within q's range. Nodes above q will change that variance. So the mean of two variances is used:
    with weight t^(-depth / 2) that of the parts as they are, and with the remaining weight that of the parts
    cut at the borders of q's children.

    Args: starts and ends of the workload's m ranges in leaves, fractions allowed; unit_weight, the weight of
        each single leaf as an additional query.
    Returns: integer parts, one array per level, leaves first; on every path they add up to ``LATTICE``.
    Cost: O(k + m log k) for k leaves: a range covers at most two nodes of a level in part, and all ranges
        that cover a node are handled together (the paper's O(m k log k + k^2) is for any linear queries).
    Source: Li et al. (2014), algorithm 2 and appendix C.2. Their equation 17 lacks the factor (1 - lambda)^-2
        on m_q1 + m_q2; the formula here is derived again, with s = lambda / (1 - lambda).
    """
    climb = RangeClimb(tree, starts, ends)
    variance = np.ones(tree.size)
    squares = variance.copy()
    error = _leaf_error(tree, climb) + unit_weight
    odds = [np.zeros(tree.size)]
    for level, fan in enumerate(tree.fans, start=1):
        # t^(-depth / 2): one over the root of the number of nodes on this level of a full tree.
        decay = math.prod(tree.fans[level:]) ** -0.5
        joint, separate = _covered_squares(climb, fan, variance)
        unit = unit_weight * child_sums(squares, fan)
        total, error = child_sums(variance, fan), child_sums(error, fan)
        chosen = best_odds(total, error, decay * joint + (1.0 - decay) * separate + unit)
        climb.rise(variance)

        rescale = (1.0 + chosen) ** 2
        shrink = 1.0 / (1.0 + chosen**2 * total)
        error = rescale * (error - (joint + unit) * chosen**2 * shrink)
        variance = rescale * total * shrink
        squares = (rescale * shrink) ** 2 * child_sums(squares, fan)
        climb.parts = climb.parts * (rescale * shrink)[climb.nodes]
        odds.append(chosen)
    return _integer_parts(tree, odds)


def best_odds(total: FloatArray, error: FloatArray, gain: FloatArray) -> FloatArray:
    """Return the s >= 0 that minimises (1 + s)^2 (error - gain s^2 / (1 + total s^2)), elementwise.

    With s = lambda / (1 - lambda) this is the workload's error if the node gets the share lambda of the
    budget. The derivative has the sign of P(s) = (total error - gain) (total s^4 + 2 s^2) - gain s + error. P
    is convex, since its first factor is never negative (Cauchy and Schwarz). So the minimum is at 0 or at P's
    larger root, which Newton's method reaches from the right without overshooting.

    >>> best_odds(np.array([2.0]), np.array([8.0]), np.array([16.0])).tolist()
    [99.0]
    >>> best_odds(np.array([2.0]), np.array([8.0]), np.array([1.0])).tolist()
    [0.0]
    """
    slack = np.maximum(total * error - gain, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.nan_to_num(np.cbrt(gain / (slack * total)), nan=0.0, posinf=_LARGEST_ODDS)
    odds = np.minimum(odds, _LARGEST_ODDS)
    for _ in range(40):
        value = slack * (total * odds**4 + 2.0 * odds**2) - gain * odds + error
        slope = slack * (4.0 * total * odds**3 + 4.0 * odds) - gain
        step = np.where((slope > 0.0) & (value > 0.0), value / np.where(slope > 0.0, slope, 1.0), 0.0)
        odds = np.maximum(odds - step, 0.0)
        if not (step > 1e-12 * (1.0 + odds)).any():
            break
    with_node = (1.0 + odds) ** 2 * (error - gain * odds**2 / (1.0 + total * odds**2))
    return np.where(with_node < error, odds, 0.0)


def _leaf_error(tree: IntervalTree, climb: RangeClimb) -> FloatArray:
    """Return, per leaf, the sum over all ranges of (the fraction of the leaf inside the range)^2."""
    return _at_nodes(tree.size, climb.nodes, climb.parts**2) + _covering(tree.size, climb.nodes)


def _covered_squares(climb: RangeClimb, fan: int, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return, per parent, two sums over ranges: of (its children's parts added up)^2, and of each part^2."""
    parents = climb.nodes // fan
    size = -(-variance.size // fan)
    covering = _covering(size, parents)
    joint = _at_nodes(size, parents, climb.gather(climb.parts, variance) ** 2)
    separate = _at_nodes(size, parents, climb.gather(climb.parts**2, variance**2))
    return (
        joint + covering * child_sums(variance, fan) ** 2,
        separate + covering * child_sums(variance**2, fan),
    )


def _at_nodes(size: int, nodes: Int64Array, values: FloatArray) -> FloatArray:
    """Return, per node, the sum of the values (2, m) of the ranges that end in it, each range once."""
    second = nodes[1] > nodes[0]
    where = np.concatenate([nodes[0], nodes[1][second]])
    return np.asarray(np.bincount(where, np.concatenate([values[0], values[1][second]]), size), dtype=float)


def _covering(size: int, nodes: Int64Array) -> FloatArray:
    """Return, per node, the number of ranges that begin before the node and end after it."""
    inner = nodes[1] > nodes[0]
    steps = np.bincount(nodes[0][inner] + 1, minlength=size + 1) - np.bincount(
        nodes[1][inner], minlength=size + 1
    )
    return np.cumsum(steps)[:size].astype(np.float64)


def _integer_parts(tree: IntervalTree, odds: list[FloatArray]) -> list[Int64Array]:
    """Return integer parts, which sum to ``LATTICE`` on each path, from each node's odds (node : below)."""
    parts: list[Int64Array] = []
    left = np.full(1, LATTICE, dtype=np.int64)
    for level in range(len(tree.sizes) - 1, 0, -1):
        share = odds[level] / (1.0 + odds[level])
        # Every level below keeps at least one unit, so every leaf is measured.
        part = np.minimum(np.floor(share * left).astype(np.int64), left - level)
        parts.append(part)
        left = tree.to_children(level - 1, left - part)
    parts.append(left)
    return parts[::-1]
