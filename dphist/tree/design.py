"""A tree with its budget: the noise scale of every level, and the resulting error. A design is public.

The privacy cost is computed and checked in exact fractions, errors in doubles from the rounded scales.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from dphist.arrays import FloatArray
from dphist.laws.law import discrete_laplace_variance
from dphist.noise import checked_scale
from dphist.privacy import Neighbours, check_shares, exact, path_epsilon, ratio
from dphist.privacy import sensitivity as level_sensitivity
from dphist.tree.range_error import level_uniform_error, workload_error
from dphist.tree.shape import TreeShape, node_counts
from dphist.workloads import PREFIX, Workload, WorkloadText

Release = Literal["causal", "anticipating"]

# Published values are int64 in units of 2^-16: with a larger scale, one noise draw could overflow them.
LARGEST_SCALE = 2**38


@dataclass(frozen=True)
class TreeDesign:
    """One level-uniform tree over an epoch of ``horizon`` bins, with a share of epsilon per level.

    Guarantee: releasing every node once, with discrete Laplace noise of its level's scale, is epsilon-DP for
        streams whose counts differ by at most ``sensitivity`` in L1 on each level (``privacy.sensitivity``).
        Scales are rounded up to doubles; the sum of sensitivity / scale over levels is checked exactly.
    Args: shares for levels 1..height, root side first; horizon in bins, at most the tree's capacity;
        sensitivity in counts, for the declared neighbours.
    Raises: ValueError naming the field that is wrong.

    >>> design = TreeDesign(TreeShape((4, 4)), 16, Fraction(1), (Fraction(1, 2), Fraction(1, 2)))
    >>> design.branching, design.level_epsilons
    ((4, 4), (Fraction(1, 2), Fraction(1, 2)))
    """

    shape: TreeShape
    horizon: int
    epsilon: Fraction
    shares: tuple[Fraction, ...]
    neighbours: Neighbours = "add_remove"
    sensitivity: int = 1
    release: Release = "causal"

    def __post_init__(self) -> None:
        if not 1 <= self.horizon <= self.shape.capacity:
            raise ValueError(
                f"horizon: {self.horizon} bins are outside [1, {self.shape.capacity}] of this tree"
            )
        if len(self.shares) != self.shape.height:
            raise ValueError(
                f"shares: {len(self.shares)} given for {self.shape.height} levels; give one per level"
            )
        check_shares(self.shares)
        if not isinstance(self.epsilon, Fraction) or self.epsilon <= 0:
            raise ValueError(f"epsilon: {self.epsilon!r} is not a fraction above zero; use privacy.exact")
        least = level_sensitivity(1, self.neighbours)
        if self.sensitivity < least or self.sensitivity % least:
            raise ValueError(
                f"sensitivity: {self.sensitivity} is not a multiple of {least} under {self.neighbours}"
            )
        if self.release not in get_args(Release):
            raise ValueError(
                f"release: {self.release!r} is unknown; write one of {', '.join(get_args(Release))}"
            )
        if max(self.scales) > LARGEST_SCALE:
            raise ValueError(
                f"epsilon: {self.epsilon} needs noise beyond 2^38 per node; choose a larger epsilon"
            )
        if path_epsilon(self.scales, self.sensitivity) > self.epsilon:
            raise AssertionError("scales rounded up cannot cost more than epsilon; dphist.noise is wrong")

    def __hash__(self) -> int:
        # Every answer looks a design up in caches; hashing its fractions each time would cost more than that.
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.to_json())

    @property
    def branching(self) -> tuple[int, ...]:
        """The branching factors, root to leaf."""
        return self.shape.branching

    @property
    def level_epsilons(self) -> tuple[Fraction, ...]:
        """The epsilon of each measured level before scales are rounded up, root side first."""
        return tuple(self.epsilon * share for share in self.shares)

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """The noise scale of each measured level, in counts: fractions that were rounded up to doubles."""
        return tuple(Fraction(checked_scale(self.sensitivity / epsilon)) for epsilon in self.level_epsilons)

    @cached_property
    def variances(self) -> tuple[float, ...]:
        """The exact variance of one node's noise on each measured level, in counts squared."""
        return tuple(discrete_laplace_variance(float(scale)) for scale in self.scales)

    @cached_property
    def gains(self) -> tuple[float, ...]:
        """The weight of a node's own value in its estimate from below; its children's sum has the rest."""
        return tuple(gain for gain, _ in self._from_below)

    @cached_property
    def variances_from_below(self) -> tuple[float, ...]:
        """The variance of a node's estimate from its own subtree, per measured level (root side first).

        Source: Hay et al. (2010), section 4.1, with weights for unequal levels: with s the node's own
        variance and v' its children's, v = s k v' / (s + k v').
        """
        return tuple(variance for _, variance in self._from_below)

    @cached_property
    def _from_below(self) -> tuple[tuple[float, float], ...]:
        leaf = self.variances[-1]
        rows = [(1.0, leaf)]
        for own, k in zip(self.variances[-2::-1], self.branching[:0:-1], strict=True):
            children = k * rows[-1][1]
            # With a huge epsilon, levels have no noise, so any weight will do.
            gain = children / (own + children) if own > 0 else 1.0
            rows.append((gain, gain * own))
        return tuple(reversed(rows))

    @property
    def anticipates(self) -> bool:
        """Whether all noise is drawn before the epoch, so that answers can use incomplete nodes."""
        return self.release == "anticipating"

    def drawn_nodes(self, bins: int) -> tuple[int, ...]:
        """Return how many nodes per measured level have noise after the first ``bins`` bins of an epoch."""
        if self.anticipates:
            return node_counts(self.shape, self.horizon)
        return tuple(self.shape.completed_count(bins, level) for level in self.shape.levels)

    def node_variances(self) -> tuple[FloatArray, ...]:
        """Return the variance of every node's own noise, per measured level, shape (nodes,)."""
        counts = node_counts(self.shape, self.horizon)
        return tuple(np.full(count, own) for count, own in zip(counts, self.variances, strict=True))

    def mean_squared_error(self, workload: Workload | WorkloadText = PREFIX) -> float:
        """Return the expected squared error of a workload's answers, averaged over its questions.

        Guarantee: exact, up to the rounding of published values to 2^-16. A causal answer is the best linear
            unbiased estimate from the nodes that are complete when the question's last bin closes. An
            anticipating answer is that of least squares over the whole epoch's noise.
        Raises: ValueError for a workload that is unknown or longer than the epoch.
        Cost: O(height) for the running count, else O(height * horizon).
        """
        questions = Workload.of(workload)
        if questions != PREFIX:
            own = self.node_variances()
            return workload_error(self.shape, self.horizon, own, questions, self.anticipates)
        if self.anticipates:
            return level_uniform_error(self.shape, self.horizon, self.variances) / self.horizon
        means = self.shape.mean_digits(self.horizon)
        return sum(digit * v for digit, v in zip(means, self.variances_from_below, strict=True))

    def to_json(self) -> str:
        """Return the canonical text: sorted keys, no spaces, fractions as "p/q"; equal designs, equal text.

        >>> TreeDesign(TreeShape((2,)), 2, Fraction(1), (Fraction(1),)).to_json()[:40]
        '{"branching":[2],"epsilon":"1/1","horizo'
        """
        fields = {
            "branching": list(self.branching),
            "epsilon": ratio(self.epsilon),
            "horizon": self.horizon,
            "neighbours": self.neighbours,
            "release": self.release,
            "sensitivity": self.sensitivity,
            "shares": [ratio(share) for share in self.shares],
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> TreeDesign:
        """Read the text of ``to_json`` and check it. Raises: ValueError for other fields or bad values."""
        fields = json.loads(text)
        expected = {"branching", "epsilon", "horizon", "neighbours", "release", "sensitivity", "shares"}
        if not isinstance(fields, Mapping) or set(fields) != expected:
            raise ValueError(f"design: expected the keys {sorted(expected)}")
        return cls(
            shape=TreeShape(tuple(fields["branching"])),
            horizon=_whole(fields, "horizon"),
            epsilon=exact(fields["epsilon"]),
            shares=tuple(exact(share, "shares") for share in fields["shares"]),
            neighbours=fields["neighbours"],
            sensitivity=_whole(fields, "sensitivity"),
            release=fields["release"],
        )


def _whole(fields: Mapping[str, Any], key: str) -> int:
    value = fields[key]
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key}: {value!r} is not a whole number")
    return value
