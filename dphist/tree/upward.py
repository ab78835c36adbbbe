"""Close bins: compute the exact counts of the nodes that they complete, and estimates from below.

Values are integers in units of 2^-16 of a count. The estimate of a node with noisy value y and children's
estimates z_c is z = 2^16 y + g (sum z_c - 2^16 y). The product is rounded to the nearest integer, and
g = 1 - gain depends on the level only. Integers make the result the same for every batch size, order of
addition and machine, so anyone can recompute a published value from the nodes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import Int64Array
from dphist.tree.design import TreeDesign
from dphist.tree.shape import TreeShape
from dphist.units import VALUE_BITS, FullError

# Published values are int64 in units of 2^-16; this limit on a node's count leaves room for noise.
LARGEST_COUNT = 2**45
MOST_EVENTS = LARGEST_COUNT // 2  # of an epoch, as released: then it counts no further bin


def checked_counts(counts: ArrayLike, width: int, closed: int, horizon: int) -> Int64Array:
    """Return the exact counts of the next bins of an epoch as int64, shape (bins, width).

    Args: closed, the number of bins before them; horizon, the epoch's bins.
    Raises: ValueError for counts of a wrong kind, or bins beyond the horizon; FullError for more than the
        numbers hold. The message shows no count.
    """
    rows = np.asarray(counts)
    if rows.dtype.kind not in "iu":
        raise ValueError(f"counts: dtype {rows.dtype} given; exact integers are needed")
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"counts: shape {rows.shape} given; (bins, {width}) is needed")
    if rows.size and rows.min() < 0:
        raise ValueError("counts: below 0; check what is counted")
    if rows.sum(dtype=np.float64) > LARGEST_COUNT:
        raise FullError("counts: above 2^45 in one call; check what is counted")
    if closed + len(rows) > horizon:
        raise ValueError(
            f"counts: {len(rows)} more bins after {closed} are beyond the horizon of {horizon}; "
            "start a new epoch"
        )
    return rows.astype(np.int64)


def exact_nodes(
    shape: TreeShape, open_counts: Int64Array, leaves: Int64Array, closed: int
) -> tuple[list[Int64Array], Int64Array]:
    """Return the exact counts of the nodes that the next bins complete, and of open nodes. SECRET.

    Args: open_counts (height, width), of the complete children of each level's open node; leaves, the exact
        counts of the bins, (bins, width); closed, the number of bins before them.
    Returns: per measured level, root side first, (nodes, width); the next ``open_counts``.
    """
    exact, open_counts = [leaves], open_counts.copy()
    for level in range(shape.height, 1, -1):
        done = closed // shape.widths[level]
        sums, open_counts[level - 2] = close_parents(
            open_counts[level - 2], exact[0], done, shape.branching[level - 1]
        )
        exact.insert(0, sums)
    return exact, open_counts


class UpwardPass:
    """The estimates from below of a growing forest. All its state is public: it sees noisy nodes only.

    ``open_sums[i - 1]`` is the sum of the estimates of the complete level-i nodes whose parent is not
    complete. These rows add up to the running count.

    Args: design; width in cells; to continue a forest, the bins closed so far and their open sums.
    """

    def __init__(
        self, design: TreeDesign, width: int, bins: int = 0, open_sums: Int64Array | None = None
    ) -> None:
        self.shape = design.shape
        self.shares_of_children = tuple(1.0 - gain for gain in design.gains)
        self.bins = design.shape.checked_bins(bins)
        rows = (design.shape.height, width)
        self.open_sums = np.zeros(rows, np.int64) if open_sums is None else open_sums.copy()

    def live(self) -> Int64Array:
        """Return the running count now, shape (width,), in units of 2^-16."""
        return np.asarray(self.open_sums.sum(axis=0))

    def advance(self, nodes: Sequence[Int64Array]) -> tuple[list[Int64Array], Int64Array]:
        """Add the nodes that the next bins complete; return these nodes' estimates and the running counts.

        Args: nodes, the noisy counts per measured level, root side first, shape (n, width).
        Returns: their estimates from below, in the same shapes, and the running count after each bin, shape
            (bins, width); both in units of 2^-16.
        """
        before = self.live()
        estimates = [np.left_shift(values, VALUE_BITS) for values in nodes]
        changes = estimates[-1].copy()
        for level in range(self.shape.height, 1, -1):
            done = self.bins // self.shape.widths[level]
            sums, self.open_sums[level - 1] = close_parents(
                self.open_sums[level - 1], estimates[level - 1], done, self.shape.branching[level - 1]
            )
            if not len(sums):
                break
            own = estimates[level - 2]
            width = self.shape.widths[level - 1]
            own += np.rint((sums - own) * self.shares_of_children[level - 2]).astype(np.int64)
            first = width - 1 - self.bins % width
            changes[first::width] += own - sums
        else:
            self.open_sums[0] += estimates[0].sum(axis=0)
        self.bins += len(changes)
        return estimates, before + changes.cumsum(axis=0)


def close_parents(
    open_sum: Int64Array, children: Int64Array, first_child: int, branching: int
) -> tuple[Int64Array, Int64Array]:
    """Return the sums of the parents that these children complete, and the new open parent's sum.

    Args: open_sum (width,) over the open parent's earlier children; children (n, width), the first of which
        has index ``first_child`` on its level.
    Returns: sums (parents, width); open sum (width,).

    >>> sums, rest = close_parents(np.array([10]), np.array([[1], [2], [3]]), first_child=1, branching=2)
    >>> sums.tolist(), rest.tolist()
    ([[11], [5]], [0])
    """
    if not len(children):
        return children, open_sum
    totals = children.cumsum(axis=0)
    totals += open_sum
    last = totals[branching - 1 - first_child % branching :: branching]
    if not len(last):
        return last, totals[-1]
    sums = last.copy()
    sums[1:] -= last[:-1]
    return sums, totals[-1] - last[-1]
