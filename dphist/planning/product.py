"""Choose the shares of time, keys and values.

A product question combines a range of time, a threshold of the value and a key. The variance of its answer is
2 (c / epsilon)^2 times one factor per axis, which depends on the shape and shares of that axis alone. So the
mean over all thresholds and times is least if each axis is planned separately. Integer noise changes a
variance by less than 1 / (12 scale^2) of it.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Unpack

from dphist.planning.tree import TreeOptions, plan_tree
from dphist.privacy import Exact, Neighbours
from dphist.product.axis import KeyAxis, ValueAxis
from dphist.product.design import ProductDesign
from dphist.product.sums import LARGEST_WEIGHT
from dphist.tree.design import Release
from dphist.tree.shape import TreeShape
from dphist.workloads import PREFIX, Workload, WorkloadText

# An epsilon so small that integer noise has the same optimum as continuous noise.
_PLANNING_EPSILON = Fraction(1, 10)
# The share of the total over keys, if it is queried about as often as all keys together.
TOTAL_SHARE = Fraction(1, 5)


def plan_product(
    horizon: int,
    epsilon: Exact,
    keys: int = 1,
    buckets: int = 1,
    *,
    total_share: Fraction = Fraction(0),
    workload: Workload | WorkloadText = PREFIX,
    release: Release = "causal",
    neighbours: Neighbours = "add_remove",
    max_events: int = 1,
    branching: Sequence[int] | None = None,
    shares: Sequence[Exact] | None = None,
) -> ProductDesign:
    """Return the strategy whose mean squared error, over all thresholds, times and keys, is least.

    Guarantee: the design's own (epsilon in total for one epoch).
    Args: horizon in bins; keys and buckets, how many (1: no such axis); total_share, the share of epsilon for
        measuring the total over keys (0: the total is the sum of the keys); workload, release, branching and
        shares of the tree over time, as in ``plan_tree``.
    Raises: ValueError naming the argument.

    >>> design = plan_product(720, 1, keys=20, buckets=256)
    >>> design.values.shape.branching, design.columns
    ((3, 8, 13), 5580)
    """
    time = plan_tree(
        horizon, epsilon, workload, release, neighbours, max_events, branching=branching, shares=shares
    )
    # All buckets are known at once, so least squares use the whole tree, as an anticipating plan assumes.
    values = plan_tree(buckets, _PLANNING_EPSILON, "prefix", "anticipating")
    axis = ValueAxis(buckets, values.shape, values.shares)
    return ProductDesign(time, KeyAxis(keys, 1 - total_share, total_share), axis)


def plan_sums(
    horizon: int,
    epsilon: Exact,
    weight: int,
    keys: int = 1,
    *,
    total_share: Fraction = Fraction(0),
    max_events: int = 1,
    **time: Unpack[TreeOptions],
) -> ProductDesign:
    """Return the strategy of least mean squared error for counts and sums of an amount, of every key.

    Guarantee: the design's own. Both cells of a key together hold ``weight`` for each event, so this is the
        L1 sensitivity of an event; under substitution it is twice as much.
    Args: weight, the units from the least to the greatest amount; the others as in ``plan_product``.
    Raises: ValueError naming the argument.

    >>> plan_sums(24, 1, 500).time.sensitivity, plan_sums(24, 1, 500, neighbours="substitute").cells
    (500, 2)
    """
    if not 1 <= weight <= LARGEST_WEIGHT:
        raise ValueError(f"sum: {weight} units from min to max are not in [1, {LARGEST_WEIGHT}]")
    tree = plan_tree(horizon, epsilon, max_events=weight * max_events, **time)
    ends = ValueAxis(2, TreeShape((2,)), (Fraction(1),))
    return ProductDesign(tree, KeyAxis(keys, 1 - total_share, total_share), ends, weight)
