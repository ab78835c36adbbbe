"""The exact errors of running counts, ranges and workloads, from the variance of every node's own noise.

**Running counts.** Let s be the variance of a node's own noise, x_c its children's variances from below and B
their sum. Least squares from below gives the node the variance v = s B / (s + B). A correction from above is
divided among the children in proportion to x_c. Let alpha_t be the part of a node's correction that falls in
its first t bins. If t is in child j, alpha = (C_j + x_j alpha_child) / B, where C_j is the sum of the
variances of the children before j. The error of the t-th running count is then a sum of independent parts,
one per node that t cuts:

    C_j + x_j alpha^2 - (C_j + x_j alpha)^2 / B     (for top-level nodes: without the last term)

The causal count is the sum of the maximal complete nodes.

**Ranges.** An anticipating answer is the difference of two published running counts, so its variance needs
their covariance. Let R_t = C_j + x_j alpha_t be the variance of the children's sums before t. If edges a < b
lie inside the same node, their covariance at this node is

    C_j + x_j alpha_a alpha_b   (both in child j; R_a if a lies in an earlier child)   -   R_a R_b / B

If they lie inside different nodes it is 0. The mean over all ranges needs no covariances: summed over all
a < b, the variance of o_b - o_a is (T + 1) sum of var o_t - var(sum of o_t).

A causal answer is the best linear unbiased estimate from the nodes that are complete at b, when the range's
last bin closes. The highest complete node that holds bin a is then the root of a tree, and the part between
its end and b is a sum of whole roots.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.tree.shape import TreeShape, by_parent, to_children
from dphist.workloads import Workload, WorkloadPart


def share_of_children(own: FloatArray, children: FloatArray) -> FloatArray:
    """Return the weight of the children's sum in a node's estimate: s / (s + B).

    It is 1 for nodes that are not measured (s infinite) and 0 for nodes without noise.
    """
    odds = np.divide(children, own, out=np.full_like(children, np.inf), where=own > 0)
    return np.asarray(1.0 / (1.0 + odds))


def variances_from_below(shape: TreeShape, variances: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the variance of every node's estimate from its own subtree, per level, root side first."""
    below = [variances[-1]]
    for own, k in zip(variances[-2::-1], shape.branching[:0:-1], strict=True):
        children = by_parent(below[-1], k).sum(axis=1)
        below.append(children * share_of_children(own, children))
    return below[::-1]


def prefix_variances(
    shape: TreeShape, horizon: int, variances: Sequence[FloatArray], anticipating: bool
) -> FloatArray:
    """Return the variance of every published running count, t = 1..horizon, shape (horizon,).

    Cost: O(height * horizon).
    """
    below = variances_from_below(shape, variances)
    ends = np.arange(1, horizon + 1)
    total = np.zeros(horizon)
    alpha = np.ones(horizon)
    for level in reversed(shape.levels):
        k = shape.branching[level - 1] if level > 1 else len(below[0])
        sums = np.concatenate([[0.0], np.cumsum(below[level - 1])])
        if not anticipating:
            done = ends // shape.widths[level]
            total += sums[done] - sums[done // k * k if level > 1 else done * 0]
            continue
        child = (ends - 1) // shape.widths[level]
        parent = child // k
        before, own = sums[child] - sums[parent * k], below[level - 1][child]
        total += before + own * alpha**2
        if level > 1:
            pooled = by_parent(below[level - 1], k).sum(axis=1)[parent]
            reached = before + own * alpha
            alpha = reached / np.where(pooled > 0, pooled, 1.0)
            total -= reached * alpha
    return total


def workload_error(
    shape: TreeShape, horizon: int, variances: Sequence[FloatArray], workload: Workload, anticipating: bool
) -> float:
    """Return the mean squared error of a workload's answers: the weighted mean over its kinds of questions.

    Guarantee: exact, up to the rounding of published values to 2^-16.
    Args: variances of the nodes' own noise, per measured level (nodes,); infinite for unmeasured nodes.
    Raises: ValueError for a window longer than the epoch.
    Cost: O(height * horizon), in numpy.
    """
    workload.check(horizon)
    return sum(
        float(weight) * _part_error(shape, horizon, variances, part, anticipating)
        for part, weight in workload.parts
    )


def window_variances(
    shape: TreeShape, horizon: int, variances: Sequence[FloatArray], bins: int, anticipating: bool
) -> FloatArray:
    """Return the variance of every window [a, a + bins) of an epoch, shape (horizon - bins + 1,).

    Args, Cost: as ``workload_error``.
    """
    below = variances_from_below(shape, variances)
    starts = np.arange(horizon - bins + 1)
    if anticipating:
        return _anticipating_windows(shape, horizon, below, bins)
    found = np.zeros(len(starts))
    live = np.append(0.0, prefix_variances(shape, horizon, variances, False))
    for ends, variance in _suffixes(shape, horizon, below):
        ends, variance = ends[starts], variance[starts]
        complete = ends <= starts + bins
        between = live[starts + bins] - live[np.minimum(ends, horizon)]
        # Go from the leaves up, so that the value of the highest complete node is written last.
        found = np.where(complete, variance + between, found)
    return found


def _part_error(
    shape: TreeShape, horizon: int, variances: Sequence[FloatArray], part: WorkloadPart, anticipating: bool
) -> float:
    if part.question == "sliding":
        return float(window_variances(shape, horizon, variances, part.bins, anticipating).mean())
    running = prefix_variances(shape, horizon, variances, anticipating)
    if part.question == "prefix":
        return float(running.mean())
    pairs = horizon * (horizon + 1) / 2.0
    if not anticipating:
        return _causal_ranges(shape, horizon, variances_from_below(shape, variances), running) / pairs
    # Bin j lies in horizon - j of the running counts.
    below = variances_from_below(shape, variances)
    whole = _linear_variance(shape, below, np.arange(horizon, 0, -1.0))
    return ((horizon + 1.0) * float(running.sum()) - whole) / pairs


def _anticipating_windows(
    shape: TreeShape, horizon: int, below: Sequence[FloatArray], bins: int
) -> FloatArray:
    # Edges 0..horizon; an edge lies in the child whose last bin may end there.
    last_bins = np.maximum(np.arange(horizon + 1) - 1, 0)
    alpha = np.minimum(np.arange(horizon + 1), 1).astype(np.float64)
    own, shared = np.zeros(horizon + 1), np.zeros(horizon + 1 - bins)
    for level in reversed(shape.levels):
        values = below[level - 1]
        k = shape.branching[level - 1] if level > 1 else len(values)
        child = last_bins // shape.widths[level]
        parent, sums = child // k, np.append(0.0, np.cumsum(values))
        before, variance = sums[child] - sums[parent * k], values[child]
        reached = before + variance * alpha
        own += before + variance * alpha**2
        first, last = slice(None, horizon + 1 - bins), slice(bins, None)
        together = np.where(
            child[first] == child[last],
            before[first] + variance[first] * alpha[first] * alpha[last],
            reached[first],
        )
        if level > 1:
            pooled = by_parent(values, k).sum(axis=1)
            alpha = reached / np.where(pooled > 0, pooled, 1.0)[parent]
            own -= reached * alpha
            together -= reached[first] * alpha[last]
        shared += np.where(parent[first] == parent[last], together, 0.0)
    return np.asarray(own[bins:] + own[: horizon + 1 - bins] - 2.0 * shared)


def _linear_variance(shape: TreeShape, below: Sequence[FloatArray], weights: FloatArray) -> float:
    """Return the variance of the weighted sum, with ``weights``, of the leaves' least-squares estimates."""
    total, alpha = 0.0, weights
    for level in range(shape.height, 1, -1):
        k, variance = shape.branching[level - 1], below[level - 1]
        pooled = by_parent(variance, k).sum(axis=1)
        passed = by_parent(variance * alpha, k).sum(axis=1) / np.where(pooled > 0, pooled, 1.0)
        total += float(variance @ (alpha - to_children(passed, k, len(alpha))) ** 2)
        alpha = passed
    return total + float(below[0] @ alpha**2)


def _suffixes(
    shape: TreeShape, horizon: int, below: Sequence[FloatArray]
) -> Iterator[tuple[Int64Array, FloatArray]]:
    """Yield per level, for each bin a, the end of the node that holds a, and the variance of [a, end).

    The estimate of [a, end) uses this node's tree alone.
    """
    bins = np.arange(horizon)
    beta, rest = np.ones(horizon), np.zeros(horizon)
    for level in reversed(shape.levels):
        node, values = bins // shape.widths[level], below[level - 1]
        yield (node + 1) * shape.widths[level], rest + values[node] * beta**2
        if level == 1:
            return
        k, sums = shape.branching[level - 1], np.append(0.0, np.cumsum(values))
        parent = node // k
        stop = np.minimum((parent + 1) * k, len(values))
        after, pooled = sums[stop] - sums[node + 1], sums[stop] - sums[parent * k]
        reached = after + values[node] * beta
        rest += after + values[node] * beta**2
        beta = reached / np.where(pooled > 0, pooled, 1.0)
        rest -= reached * beta


def _causal_ranges(shape: TreeShape, horizon: int, below: Sequence[FloatArray], running: FloatArray) -> float:
    """Return the sum of the variances of all ranges [a, b), each estimated when bin b - 1 closes."""
    live = np.append(0.0, running)
    # sums[b] is the sum of live over the edges below b.
    sums = np.append(0.0, np.cumsum(live))
    total, suffixes = 0.0, list(_suffixes(shape, horizon, below))
    # A node's estimate is used until the node above it is complete.
    ends = [np.minimum(end, horizon + 1) for end, _ in suffixes]
    stops = [*ends[1:], np.full(horizon, horizon + 1)]
    for first, stop, (_, variances) in zip(ends, stops, suffixes, strict=True):
        between = sums[stop] - sums[first]
        at_first = live[np.minimum(first, horizon)]
        total += float(((stop - first) * (variances - at_first) + between).sum())
    return total


def _pool(
    bins: FloatArray, variances: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return sums over the children of each node of a level; letters as in the module's text.

    Args: bins under each child, its variance from below, and the sums of alpha and alpha^2 over its bins,
        each of shape (nodes, k), with zeros where no child exists.
    Returns: the children's variances added up; the sums over the node's bins of C + x alpha, of its square,
        and of C + x alpha^2; each of shape (nodes,).
    """
    before = np.zeros_like(variances)
    np.cumsum(variances[:, :-1], axis=1, out=before[:, 1:])
    weighted = variances * first
    return (
        variances.sum(axis=1),
        (bins * before + weighted).sum(axis=1),
        (before * (bins * before + 2.0 * weighted) + variances**2 * second).sum(axis=1),
        (bins * before + variances * second).sum(axis=1),
    )


def anticipating_uses(children: FloatArray, horizon: int) -> FloatArray:
    """Return the weight of each level's variance from below in the mean squared error of a running count.

    Guarantee: exact if the horizon is a multiple of the bins under a top-level node. Otherwise nearly exact:
        the last top-level node counts as a fraction of a node.
    Args: children per node of each level, shape (trees, height), root to leaf.
    Returns: shape (trees, height): the mean over t of c + alpha^2 - (c + alpha)^2 / k below a node, and of
        c + alpha^2 below the root; c is the number of whole children before t.
    """
    uses = np.empty_like(children)
    widths = np.ones(len(children))
    # Means of alpha and alpha^2 over a child's bins.
    first, second = np.ones(len(children)), np.ones(len(children))
    for level in range(children.shape[1] - 1, -1, -1):
        k = children[:, level] if level else horizon / widths
        before = (k - 1.0) / 2.0
        uses[:, level] = before + second
        squares = (k - 1.0) * (2.0 * k - 1.0) / 6.0 + 2.0 * before * first + second
        if level:
            uses[:, level] -= squares / k
            first, second = (before + first) / k, squares / k**2
        widths = widths * k
    return uses


def level_uniform_error(shape: TreeShape, horizon: int, variances: Sequence[float]) -> float:
    """Return the squared error of the anticipating running count, summed over t = 1..horizon, exactly.

    All complete nodes of a level have equal errors. So two nodes represent a level: a complete node, and the
    last node if the horizon cuts it off.

    Args: variances of one node's noise per measured level, root side first.
    Cost: O(height * branching), whatever the horizon.
    """
    error = 0.0
    # Rows: bins, variance from below, sum of alpha, sum of alpha^2; columns: complete node, cut-off node.
    nodes = np.zeros((4, 2))
    nodes[:, 0] = 1.0, variances[-1], 1.0, 1.0
    for level in range(shape.height - 1, 0, -1):
        k, width = shape.branching[level], shape.widths[level]
        complete, rest = divmod(horizon, width)
        children = np.zeros((4, 2, k))
        children[:, 0, :] = nodes[:, :1]
        whole, partial = divmod(rest, shape.widths[level + 1])
        children[:, 1, :whole] = nodes[:, :1]
        if partial:
            children[:, 1, whole] = nodes[:, 1]
        total, first, second, spread = _pool(*children)
        divisor = np.where(total > 0, total, 1.0)  # 0 if no child has noise
        # The error that remains, summed over a node's bins, if the node's own count is known.
        error += float(np.array([complete, rest > 0]) @ (spread - second / divisor))
        passed = share_of_children(np.full(2, variances[level - 1]), total)
        nodes = np.stack([children[0].sum(axis=1), total * passed, first / divisor, second / divisor**2])
    whole, partial = divmod(horizon, shape.widths[1])
    top = np.repeat(nodes, [whole, 1 if partial else 0], axis=1)[:, np.newaxis]
    *_, spread = _pool(*top)
    return error + float(spread[0])
