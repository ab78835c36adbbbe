"""Axes beside time: a public list of keys, and a tree over the buckets of an ordered value.

Unlike time, these axes are complete at every instant, so least squares over them use all nodes. Up to
rounding to integers, the noise of a cell has variance 2 (c / (eps a b g))^2, with one factor for each axis
(time a, values b, keys g). So the best estimate is computed axis by axis, with weights that depend on the
shares alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.privacy import check_shares
from dphist.tree.shape import TreeShape, by_parent, node_counts, to_children

LARGEST_BUCKETS = 1024  # least squares over them is kept as a dense matrix
LARGEST_KEYS = 2**20


@dataclass(frozen=True)
class ValueAxis:
    """The buckets of a value, as leaves of a level-uniform tree that is cut off after the last bucket.

    Args: buckets, 1 for a stream without values; shape, with at least this capacity; shares, one per measured
        level (sum at most 1).
    Raises: ValueError naming the field that is wrong.

    >>> axis = ValueAxis(3, TreeShape((2, 2)), (Fraction(1, 2), Fraction(1, 2)))
    >>> [level.tolist() for level in axis.level_sums(np.array([5, 1, 2]))]
    [[6, 2], [5, 1, 2]]
    """

    buckets: int
    shape: TreeShape
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.buckets <= min(self.shape.capacity, LARGEST_BUCKETS):
            raise ValueError(
                f"buckets: {self.buckets} are not in [1, {min(self.shape.capacity, LARGEST_BUCKETS)}], "
                "what this tree and a band can hold"
            )
        if len(self.shares) != self.shape.height:
            raise ValueError(f"value shares: {len(self.shares)} given for {self.shape.height} levels")
        check_shares(self.shares)

    @property
    def node_counts(self) -> tuple[int, ...]:
        """The number of nodes per measured level, root side first."""
        return node_counts(self.shape, self.buckets)

    def level_sums(self, counts: Int64Array) -> list[Int64Array]:
        """Sum counts of buckets, shape (..., buckets), into the nodes of every level, (..., nodes)."""
        return [
            np.add.reduceat(counts, np.arange(0, self.buckets, width), axis=-1)
            for width in self.shape.widths[1:]
        ]

    def least_squares(self, levels: Sequence[FloatArray]) -> FloatArray:
        """Return the buckets' best linear unbiased estimates, shape (buckets, ...).

        Guarantee: exact weighted least squares for noise variances proportional to 1 / share^2.
        Args: noisy counts per level, root side first, shape (nodes, ...).
        """
        (gains, parts), fans = self._two_passes, self.shape.branching[1:]
        estimates, sums = [levels[-1]], []
        for own, gain, k in zip(levels[-2::-1], gains[::-1], fans[::-1], strict=True):
            sums.append(by_parent(estimates[-1], k).sum(axis=1))
            estimates.append(sums[-1] + _along(gain, own) * (own - sums[-1]))
        final = estimates.pop()
        for own, total, part, k in zip(estimates[::-1], sums[::-1], parts, fans, strict=True):
            final = own + _along(part, own) * to_children(final - total, k, len(own))
        return final

    @cached_property
    def prefix_weights(self) -> tuple[FloatArray, ...]:
        """Per level (buckets, nodes): row t holds each node's weight in the best estimate of buckets 0..t."""
        counts = self.node_counts
        identity, edges = np.eye(sum(counts)), np.cumsum((0, *counts))
        levels = [identity[start:stop] for start, stop in pairwise(edges)]
        weights = self.least_squares(levels).cumsum(axis=0)
        return tuple(weights[:, start:stop] for start, stop in pairwise(edges))

    def prefix_bounds(self, bounds: Sequence[float]) -> FloatArray:
        """Return a bound on each cumulative count's error. Args: bounds on each node's error, per level."""
        pairs = zip(self.prefix_weights, bounds, strict=True)
        return np.asarray(sum(bound * np.abs(weights).sum(axis=1) for weights, bound in pairs))

    @cached_property
    def _two_passes(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """The weights of the two passes of ``least_squares``, from below and from above, root side first.

        From below: the weight of an inner node's own value. From above: each node's part of the difference
        between its parent's final value and the sum of the parent's children.
        """
        own = [1.0 / float(share) ** 2 for share in self.shares]
        variances = np.full(self.node_counts[-1], own[-1])
        gains: list[FloatArray] = []
        parts: list[FloatArray] = []
        for variance, k in zip(own[-2::-1], self.shape.branching[:0:-1], strict=True):
            children = by_parent(variances, k).sum(axis=1)
            parts.append(variances / to_children(children, k, len(variances)))
            gains.append(children / (variance + children))
            variances = gains[-1] * variance
        return gains[::-1], parts[::-1]


@dataclass(frozen=True)
class KeyAxis:
    """A public list of keys, one per event, and optionally their total with its own share of epsilon.

    Args: keys, their number; key_share; total_share, 0 if the total is not measured but the sum of the keys;
        rest, whether some events have none of these keys. There may be no key then, and the total, which is
        measured, says nothing about the keys. The rest is the total less all keys.
    Raises: ValueError naming the field that is wrong.
    """

    keys: int
    key_share: Fraction = Fraction(1)
    total_share: Fraction = Fraction(0)
    rest: bool = False

    def __post_init__(self) -> None:
        if type(self.keys) is not int or not (0 if self.rest else 1) <= self.keys <= LARGEST_KEYS:
            raise ValueError(f"keys: {self.keys!r} is not a number of keys in [1, 2^20]")
        if self.rest and not self.total_share:
            raise ValueError("total: the rest is the total less all keys; measure the total")
        if self.total_share and self.keys == 1 and not self.rest:
            raise ValueError("total: one key is its own total; leave the total out")
        check_shares([self.key_share, *([self.total_share] if self.total_share else [])])

    @property
    def cells(self) -> int:
        """The number of different counts that an event can be in: the keys, and the rest if there is one."""
        return self.keys + self.rest

    @cached_property
    def gain(self) -> float:
        """The weight of the measured total in the best estimate of the total; the keys' sum has the rest."""
        if not self.total_share or self.rest:
            return 0.0
        children = self.keys * float(self.total_share / self.key_share) ** 2
        return children / (1.0 + children)


def _along(weights: FloatArray, values: FloatArray) -> FloatArray:
    """Return weights (nodes,) in a shape that broadcasts against values of shape (nodes, ...)."""
    return weights.reshape(-1, *(1,) * (values.ndim - 1))
