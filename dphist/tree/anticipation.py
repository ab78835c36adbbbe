"""The error of the anticipating running count on level-uniform trees, in O(height).

The recursion is that of ``range_error.py``. All complete nodes of a level have equal errors. So two nodes
represent a level: a complete node, and the last node if the horizon cuts it off. If the horizon cuts off no
node, alpha depends on the shape only. The error is then a sum over levels: how often the level is used, times
its variance from below, as for the causal release.
"""

from collections.abc import Sequence

import numpy as np

from dphist.arrays import FloatArray
from dphist.tree.range_error import share_of_children
from dphist.tree.shape import TreeShape


def _pool(
    bins: FloatArray, variances: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return sums over the children of each node of a level; letters as in ``range_error.py``.

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
