"""Level-uniform trees for cumulative counts: the branching and the budgets of least error.

A tree over m bins has levels 1..h of branching k_1..k_h, product at least m; the root is not measured. The
cumulative count of t bins is a sum of nodes; the mixed-radix digits of t say how many nodes of each level it
needs. So the number u_l of nodes of level l that all t = 1..m use together depends on the shape alone. A
level of budget e_l contributes to the error in proportion to u_l / e_l^2.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np

from dphist.arrays import FloatArray, Int64Array

Budgets = Literal["optimal", "equal"]

# Shares are cube roots, kept as exact fractions of this many parts.
_SHARE_PARTS = 2**20


@dataclass(frozen=True)
class CdfTree:
    """A level-uniform tree over ``bins`` bins, with each level's share of epsilon.

    Args: branching k_1..k_h from the root down, product at least ``bins``; shares, exact, summing to 1;
        total_known, whether the number of events is public (then the last cumulative count costs nothing).

    >>> tree = best_tree(289, padding=False)
    >>> tree.branching, tree.shares == (Fraction(1, 2), Fraction(1, 2))
    ((17, 17), True)
    """

    bins: int
    branching: tuple[int, ...]
    shares: tuple[Fraction, ...]
    total_known: bool

    def squared_error(self, epsilon: float) -> float:
        """Return the sum over t = 1..bins of the variance of the cumulative count.

        The noise is continuous Laplace of scale D / (epsilon share); D is 2 if the total is known, else 1.
        With D = 2 and product exactly m, this is the paper's formula, 4 m sum of (k_l - 1) / eps_l^2.
        """
        moved = 2 if self.total_known else 1
        uses = prefix_uses(self.branching, self.bins, self.total_known)
        return sum(
            use * 2.0 * (moved / (epsilon * float(share))) ** 2
            for use, share in zip(uses, self.shares, strict=True)
        )


def prefix_uses(branching: tuple[int, ...], bins: int, total_known: bool) -> tuple[int, ...]:
    """Return, per level, how many nodes the cumulative counts of 1, 2, ..., bins bins use in total.

    >>> prefix_uses((3, 2), 6, True)
    (6, 3)
    """
    last = bins if total_known else bins + 1
    uses = []
    for depth, (branch, size) in enumerate(zip(branching, node_bins(branching), strict=True)):
        # The sum over t < last of (t // size) mod branch; the top digit never wraps.
        cycle = branch * size if depth else last * size + 1
        cycles, rest = divmod(last, cycle)
        whole, part = divmod(rest, size)
        uses.append(
            cycles * size * (branch * (branch - 1) // 2) + size * (whole * (whole - 1) // 2) + whole * part
        )
    return tuple(uses)


def tree_of(
    bins: int, branching: tuple[int, ...], *, total_known: bool = True, budgets: Budgets = "optimal"
) -> CdfTree:
    """Return the tree of this branching, with equal budgets or the best ones (proportional to uses^(1/3)).

    Args: branching; a number above ``bins + 1`` is read as ``bins + 1``, which gives the same tree.
    Raises: ValueError for a branching that does not cover the bins or an unknown choice of budgets.
    Source: Rameshwar, Tandon, theorem IV.2 (uses are m (k_l - 1) / 2 where the product is exactly m).
    """
    if bins < 1 or not branching or min(branching) < 1 or math.prod(branching) < bins:
        raise ValueError(f"branching {branching} does not cover {bins} bins; need a product of at least that")
    if budgets not in ("optimal", "equal"):
        raise ValueError(f"budgets {budgets!r} is not known; choose 'optimal' or 'equal'")
    # Arrays are laid out for all children that a node could have.
    branching = tuple(min(branch, bins + 1) for branch in branching)
    weights = [1] * len(branching)
    if budgets == "optimal":
        roots = [math.cbrt(use) for use in prefix_uses(branching, bins, total_known)]
        largest = max(roots) or 1.0
        # A level that no cumulative count uses still gets a part, because every node needs some noise.
        weights = [max(1, round(_SHARE_PARTS * root / largest)) for root in roots]
    shares = tuple(Fraction(weight, sum(weights)) for weight in weights)
    return CdfTree(bins, tuple(branching), shares, total_known)


@lru_cache(maxsize=256)
def best_tree(
    bins: int, *, total_known: bool = True, budgets: Budgets = "optimal", padding: bool = True
) -> CdfTree:
    """Return the level-uniform tree of least summed squared error over the cumulative counts.

    The search covers all factorizations of ``bins``, and nearly balanced products above ``bins`` (padding),
    with all branchings near bins^(1/h). Without padding, equal budgets and bins = p^t, p a prime of at least
    17, the best tree has p at every level (corollary V.1).

    Cost: about 10 ms for 2^20 bins, cached.
    Source: Rameshwar, Tandon, section V. Their best equal branching is 16.8 as a real number and 17 as a
        whole number. Their rule pads to a power of a prime, which is one of the shapes searched here.
    """
    if bins < 1:
        raise ValueError(f"{bins} bins: need at least 1")
    shapes = list(_balanced_shapes(bins)) if padding else []
    shapes += [order for factors in factorizations(bins) for order in {factors, factors[::-1]}]
    trees = (tree_of(bins, shape, total_known=total_known, budgets=budgets) for shape in shapes)
    return min(trees, key=lambda tree: (tree.squared_error(1.0), len(tree.branching), tree.branching))


def factorizations(number: int, least: int = 2) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as a product of non-decreasing factors.

    >>> sorted(factorizations(12))
    [(2, 2, 3), (2, 6), (3, 4), (12,)]
    """
    yield (number,)
    for factor in range(least, math.isqrt(number) + 1):
        if number % factor == 0:
            for rest in factorizations(number // factor, factor):
                yield (factor, *rest)


def level_sums(counts: Int64Array, tree: CdfTree) -> list[Int64Array]:
    """Return the exact count of every node that holds a bin, as one array per level, top level first."""
    edges = np.append(0, np.cumsum(counts))
    sums = []
    for size in node_bins(tree.branching):
        starts = np.arange(0, tree.bins, size)
        sums.append(edges[np.minimum(starts + size, tree.bins)] - edges[starts])
    return sums


def prefixes(levels: list[FloatArray], tree: CdfTree) -> FloatArray:
    """Return the cumulative counts of the first t bins, t = 0..bins, as sums of nodes.

    Args: levels, the values of the nodes that hold a bin, top level first.
    Returns: (bins + 1,).
    """
    edges = np.arange(tree.bins + 1)
    total = np.zeros(tree.bins + 1)
    for values, family, size in zip(levels, _families(tree), node_bins(tree.branching), strict=True):
        total += _sums_before(_by_family(values, family)).ravel()[edges // size]
    return total


def suffixes(levels: list[FloatArray], tree: CdfTree) -> FloatArray:
    """Return the counts of the bins from t to the end, t = 0..bins, as sums of nodes."""
    last_before = np.arange(tree.bins)
    total = np.zeros(tree.bins + 1)
    total[0] = levels[0].sum()
    for values, family, size in zip(levels, _families(tree), node_bins(tree.branching), strict=True):
        after = _sums_before(_by_family(values, family)[:, ::-1])[:, ::-1]
        total[1:] += after.ravel()[last_before // size]
    return total


def difference_uses(starts: Int64Array, ends: Int64Array, tree: CdfTree) -> Int64Array:
    """Return, per level, how many noisy nodes the difference of two cumulative counts contains.

    Children of the same parent that both counts use cancel.
    Returns: (levels, differences).
    """
    uses = []
    for family, size in zip(_families(tree), node_bins(tree.branching), strict=True):
        first, last = starts // size, ends // size
        same = first // family == last // family
        uses.append(np.where(same, last - first, first % family + last % family))
    return np.array(uses)


def node_bins(branching: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of bins that a node of each level covers."""
    return tuple(math.prod(branching[depth + 1 :]) for depth in range(len(branching)))


def _families(tree: CdfTree) -> tuple[int, ...]:
    # One more at the top: the cumulative count of a full tree uses all of the root's children.
    return (tree.branching[0] + 1, *tree.branching[1:])


def _by_family(values: FloatArray, family: int) -> FloatArray:
    rows = values.size // family + 1
    padded = np.zeros(rows * family)
    padded[: values.size] = values
    return padded.reshape(rows, family)


def _sums_before(families: FloatArray) -> FloatArray:
    """Return, for each node, the sum of the children of the same parent before it."""
    return np.cumsum(np.pad(families[:, :-1], ((0, 0), (1, 0))), axis=1)


def _balanced_shapes(bins: int) -> Iterator[tuple[int, ...]]:
    """Yield shapes that cover the bins, with branchings near bins^(1/h); larger ones come first or last."""
    yield (bins,)
    for height in range(2, 1 + max(1, math.ceil(math.log(bins + 1, 7)))):
        middle = round(bins ** (1 / height))
        near = range(max(2, middle - 3), middle + 4)
        for first in combinations_with_replacement(near, height - 1):
            last = -(-bins // math.prod(first))
            if last >= 2:
                yield (*first, last)
                yield (last, *first[::-1])
