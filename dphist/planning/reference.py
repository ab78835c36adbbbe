"""Counters of the literature, for comparison: k-ary trees with equal shares and no pooling.

All of them add up noisy nodes: a prefix [0, t) is reached from 0 in steps of ever smaller nodes. Each step
stops at the last multiple of the node's width that is not beyond t (Chan et al.), or at the nearest multiple;
then some nodes are subtracted (Andersson et al.). A node's value is its own noisy count, or the mean of this
and the sum of its subtree (Honaker). Noise is drawn at construction and turned into the error of every
prefix. If the branching is the horizon, the running count is a sum of bins, each with the whole budget.
"""

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.law import discrete_laplace_variance
from dphist.noise import NoiseSource, checked_scale
from dphist.privacy import Exact, exact


class KaryCounter:
    """The plain k-ary tree: each prefix is a sum of at most k - 1 nodes per level.

    Guarantee: epsilon-DP for streams that differ by one event: one node per level holds the event, and every
        node has discrete Laplace noise of scale height / epsilon. This also holds if later events depend on
        published values (``decoder.py``).
    Args: horizon in bins; branching at least 2; width in cells.
    Source: Chan, Shi, Song (2011) for k = 2.

    Attributes:
        errors: the error of every running count, shape (horizon, width), for measurements.
    """

    def __init__(
        self, horizon: int, epsilon: Exact, branching: int, noise: NoiseSource, width: int = 1
    ) -> None:
        if horizon < 1 or branching < 2:
            raise ValueError(f"reference counter: {horizon} bins and branching {branching} are too small")
        self.horizon, self.branching = horizon, branching
        self.height = self._height()
        self.scale = checked_scale(self.height / exact(epsilon))
        # A step to the nearest node may end beyond the horizon, by half a node of the level above.
        counts = [-(-horizon // branching**level) + branching for level in range(self.height)]
        nodes = [noise.discrete_laplace(self.scale, (count, width)) for count in counts]
        self.errors = self._decoded(nodes)

    def mean_squared_error(self) -> float:
        """Return the exact expected squared error of the running count, averaged over t = 1..horizon."""
        return float(self.prefix_variances().mean())

    def prefix_variances(self) -> FloatArray:
        """Return the variance of every running count, t = 1..horizon, shape (horizon,)."""
        total = np.zeros(self.horizon)
        for level, variance in enumerate(self._node_variances()):
            start, stop = self._step(level)
            total += variance * np.abs(stop - start)
        return total

    def _height(self) -> int:
        """Return the least height of a tree that holds the horizon; its root is not measured."""
        height = 1
        while self.branching**height < self.horizon:
            height += 1
        return height

    def _stop(self, level: int) -> Int64Array:
        """Return, for t = 1..horizon, how many whole nodes of this level (0: bins) the first t bins hold."""
        ends = np.arange(1, self.horizon + 1, dtype=np.int64)
        return np.asarray(ends // self.branching**level)

    def _step(self, level: int) -> tuple[Int64Array, Int64Array]:
        if level == self.height - 1:
            return np.zeros(self.horizon, np.int64), self._stop(level)
        return self._stop(level + 1) * self.branching, self._stop(level)

    def _node_variances(self) -> list[float]:
        return [discrete_laplace_variance(self.scale)] * self.height

    def _node_errors(self, nodes: list[Int64Array]) -> list[FloatArray]:
        return [values.astype(np.float64) for values in nodes]

    def _decoded(self, nodes: list[Int64Array]) -> FloatArray:
        total = np.zeros((self.horizon, nodes[0].shape[1]))
        for level, values in enumerate(self._node_errors(nodes)):
            sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
            start, stop = self._step(level)
            total += sums[stop] - sums[start]
        return total


class HonakerCounter(KaryCounter):
    """A tree whose complete nodes are averaged with their subtrees (Honaker 2015, online, branching 2).

    If a node has variance 1 and its k children have variance v, the average has 1 / (1 + 1 / (k v)).
    """

    def _gains(self) -> list[float]:
        gains = [1.0]
        for _ in range(1, self.height):
            gains.append(1.0 / (1.0 + 1.0 / (self.branching * gains[-1])))
        return gains

    def _node_variances(self) -> list[float]:
        return [gain * discrete_laplace_variance(self.scale) for gain in self._gains()]

    def _node_errors(self, nodes: list[Int64Array]) -> list[FloatArray]:
        pooled = [nodes[0].astype(np.float64)]
        for gain, own in zip(self._gains()[1:], nodes[1:], strict=True):
            complete, k = len(pooled[-1]) // self.branching, self.branching
            sums = pooled[-1][: k * complete].reshape(complete, k, -1).sum(axis=1)
            pooled.append(gain * own[:complete] + (1.0 - gain) * sums)
        return pooled


class SubtractionCounter(KaryCounter):
    """A k-ary tree, k odd, whose prefixes add and subtract nodes (Andersson et al. 2024).

    A prefix uses at most (k - 1) / 2 nodes per level, also the noise of nodes that are not complete.
    Raises: ValueError for an even branching.
    """

    def _height(self) -> int:
        if self.branching % 2 == 0:
            raise ValueError(f"reference counter: subtraction needs an odd branching, not {self.branching}")
        height = 1
        while (self.branching**height - 1) // 2 < self.horizon:
            height += 1
        return height

    def _stop(self, level: int) -> Int64Array:
        width = self.branching**level
        ends = np.arange(1, self.horizon + 1, dtype=np.int64)
        return np.asarray((ends + (width - 1) // 2) // width)
