"""What is known from released nodes whose noise differs from node to node: estimates and their exact law.

The complete nodes of a growing epoch are those of a tree cut off at its closed bins, in which nodes that are
not complete are not measured. So the recursions of ``node_error.py`` and ``published_error.py`` hold with
infinite variances there, and weights come out per node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dphist.noise import Int64Array
from dphist.tree.decoder import WEIGHT_BITS, decoder_weights, scaled
from dphist.tree.epoch_nodes import by_parent, node_counts, to_children
from dphist.tree.estimate import Estimate, ReleasedForest
from dphist.tree.interval import half_width
from dphist.tree.law import WeightedNoise
from dphist.tree.node_design import NodeDesign
from dphist.tree.node_error import share_of_children, variances_from_below
from dphist.tree.series import Series, checked_series
from dphist.tree.upward import UNITS_PER_COUNT, UpwardPass

FloatArray = NDArray[np.float64]


class NodeUpwardPass(UpwardPass):
    """The estimates from below of a growing forest with a share per node: ``decoder.py``'s, node by node."""

    def __init__(
        self, design: NodeDesign, width: int, bins: int = 0, open_sums: Int64Array | None = None
    ) -> None:
        self._start(design.shape, width, bins, open_sums)
        self._children = decoder_weights(design).children

    def _correction(self, level: int, first: int, difference: Int64Array) -> Int64Array:
        weights = self._children[level - 1][first : first + len(difference)]
        return np.asarray(scaled(weights[:, np.newaxis], difference), np.int64)


class NodeForest(ReleasedForest):
    """A reader's view of an epoch that is released causally with a share per node.

    Guarantee: as ``ReleasedForest``: the best linear unbiased estimates from complete nodes.
    Args, Cost: likewise; a query costs O(nodes), and its law a group for every different weight.
    """

    design: NodeDesign  # type: ignore[assignment]

    def __init__(self, design: NodeDesign, width: int = 1) -> None:
        super().__init__(design, width)  # type: ignore[arg-type]

    def _upward_pass(self) -> UpwardPass:
        return NodeUpwardPass(self.design, self.width)

    def range(self, a: int, b: int) -> Estimate:
        """Return the number of events in bins [a, b), as well as it is known now.

        Raises: ValueError unless 0 <= a <= b <= bins.
        """
        if not 0 <= a <= b <= self.bins:
            raise ValueError(f"range [{a}, {b}): closed bins are [0, {self.bins})")
        weights = range_weights_of_nodes(self.design, self.bins, a, b)
        value = np.zeros(self.width)
        for level, own in zip(self.design.shape.levels, weights, strict=True):
            nodes = self.nodes(level)
            value += own[: len(nodes)] @ nodes
        return _estimate(self.design, weights, value, 0.0)

    def live_prefix(self, t: int) -> Estimate:
        """Return the number of events in bins [0, t) as it was first published, when bin t - 1 closed."""
        return live_estimate_of_nodes(self.design, t, self.live_units(t))

    def series(self, kind: Series = "running") -> FloatArray:
        """Return every point of a series, shape (bins, width), in counts; see ``ReleasedForest.series``."""
        if checked_series(kind) == "live":
            return self._live.view() / UNITS_PER_COUNT
        if not self.bins:
            return np.zeros((0, self.width))
        leaves = self._leaves()
        return leaves if kind == "bin" else np.cumsum(leaves, axis=0)

    def series_variance(self, kind: Series = "running", points: ArrayLike | None = None) -> FloatArray:
        """Return the exact variance of points of a series; O(nodes) each."""
        return np.array([law.variance for law in self._laws(kind, points)])

    def series_half_widths(
        self, kind: Series = "running", confidence: float = 0.95, points: ArrayLike | None = None
    ) -> FloatArray:
        """Return half widths of the intervals of points of a series; O(nodes) each."""
        rounding = decoder_weights(self.design).rounding_units / UNITS_PER_COUNT
        return np.array([half_width(law, confidence).value + rounding for law in self._laws(kind, points)])

    def _laws(self, kind: Series, points: ArrayLike | None) -> list[WeightedNoise]:
        laws = []
        for point in self._checked_points(points).tolist():
            if checked_series(kind) == "live":
                weights = live_weights_of_nodes(self.design, point + 1)
            else:
                start = point if kind == "bin" else 0
                weights = range_weights_of_nodes(self.design, self.bins, start, point + 1)
            laws.append(_law(self.design, weights))
        return laws

    def _leaves(self) -> FloatArray:
        """Spread what the roots know down to the bins, in proportion to the children's variances."""
        shape, bins = self.design.shape, self.bins
        variances = _complete_variances(self.design, bins)
        below = variances_from_below(shape, variances)
        estimates: list[FloatArray] = [self._padded(shape.height)]
        sums: list[FloatArray] = []
        for level in range(shape.height - 1, 0, -1):
            sums.append(by_parent(estimates[-1], shape.branching[level]).sum(axis=1))
            own, total = variances[level - 1], by_parent(below[level], shape.branching[level]).sum(axis=1)
            passed = share_of_children(own, total)[:, np.newaxis]
            estimates.append((1.0 - passed) * self._padded(level) + passed * sums[-1])
        final, levels = estimates[-1], range(1, shape.height)
        for level, children, total in zip(levels, estimates[-2::-1], sums[::-1], strict=True):
            k, pooled = shape.branching[level], by_parent(below[level], shape.branching[level]).sum(axis=1)
            handed = (final - total) / np.where(pooled > 0, pooled, 1.0)[:, np.newaxis]
            final = children + below[level][:, np.newaxis] * to_children(handed, k, len(children))
        return final

    def _padded(self, level: int) -> FloatArray:
        """A level's noisy counts, with a zero for the node that is not complete."""
        rows = np.zeros((node_counts(self.design.shape, self.bins)[level - 1], self.width))
        nodes = self.nodes(level)
        rows[: len(nodes)] = nodes
        return rows


def range_weights_of_nodes(design: NodeDesign, bins: int, a: int, b: int) -> list[FloatArray]:
    """Return the weights of the best estimate of [a, b) on the nodes' values when ``bins`` bins are closed.

    Returns: per measured level, root side first, one weight for each node that holds a closed bin.
    Cost: O(nodes).
    """
    if not bins:
        return [np.zeros(0)] * design.shape.height
    variances = _complete_variances(design, bins)
    below = variances_from_below(design.shape, variances)
    inside = np.zeros(bins)
    inside[a:b] = 1.0
    alphas, passed_on = [inside], []
    for level in range(design.shape.height - 1, 0, -1):
        k, variance = design.branching[level], below[level]
        pooled = by_parent(variance, k).sum(axis=1)
        passed_on.append(share_of_children(variances[level - 1], pooled))
        alphas.append(by_parent(variance * alphas[-1], k).sum(axis=1) / np.where(pooled > 0, pooled, 1.0))
    alphas.reverse()
    reach, own = alphas[0], []
    for level, share in enumerate(reversed(passed_on), start=1):
        passed = reach * share
        own.append(reach - passed)
        k, children = design.branching[level], len(alphas[level])
        reach = alphas[level] - to_children(alphas[level - 1] - passed, k, children)
    return [*own, reach]


def live_weights_of_nodes(design: NodeDesign, bins: int) -> list[FloatArray]:
    """Return the weights of the running count as first published: those that the integers really use."""
    shape, weights = design.shape, decoder_weights(design).children
    counts = node_counts(shape, bins) if bins else (0,) * shape.height
    reach, own = np.ones(counts[0]), list[FloatArray]()
    for level in shape.levels:
        complete = np.arange(counts[level - 1]) < bins // shape.widths[level]
        if level == shape.height:
            return [*own, reach]
        # A node that is not complete hands on everything.
        share = np.where(complete, weights[level - 1][: counts[level - 1]] / (1 << WEIGHT_BITS), 1.0)
        own.append(reach * (1.0 - share))
        reach = to_children(reach * share, shape.branching[level], counts[level])
    raise AssertionError("a tree has at least one level")


def live_estimate_of_nodes(design: NodeDesign, bins: int, units: Int64Array) -> Estimate:
    """Return a published running count, in units of 2^-16 and shape (width,), as an estimate.

    Guarantee: as ``estimate.live_estimate``.
    """
    rounding = decoder_weights(design).rounding_units / UNITS_PER_COUNT if bins else 0.0
    return _estimate(design, live_weights_of_nodes(design, bins), units / UNITS_PER_COUNT, rounding)


def _complete_variances(design: NodeDesign, bins: int) -> list[FloatArray]:
    """Return the variances of the nodes that hold a closed bin, infinite for those not complete."""
    rows = []
    for level, count in zip(design.shape.levels, node_counts(design.shape, bins), strict=True):
        own = design.node_variances[level - 1][:count].copy()
        own[bins // design.shape.widths[level] :] = np.inf
        rows.append(own)
    return rows


def _law(design: NodeDesign, weights: Sequence[FloatArray]) -> WeightedNoise:
    groups: list[tuple[float, int, float]] = []
    for own, all_scales in zip(weights, design.node_scales, strict=True):
        scales = all_scales[: len(own)]
        used = (own != 0.0) & (scales > 0.0)
        # Pairs as complex numbers: sorted many times faster than rows are.
        pairs, copies = np.unique(np.abs(own[used]) + 1j * scales[used], return_counts=True)
        groups += [(pair.real, int(n), pair.imag) for pair, n in zip(pairs.tolist(), copies, strict=True)]
    return WeightedNoise.of(groups)


def _estimate(
    design: NodeDesign, weights: Sequence[FloatArray], counts: FloatArray, rounding: float
) -> Estimate:
    law = _law(design, weights)
    value = float(counts[0]) if len(counts) == 1 else counts
    return Estimate(value, law.variance, law, rounding)
