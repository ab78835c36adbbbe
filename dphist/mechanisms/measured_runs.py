"""Least squares over measured runs of buckets, overlapping or not, solved as a network of resistors.

The count of a run is the difference of two running counts. So a measurement of variance s acts like a
resistor of s ohms between the run's two ends, and least squares finds the potentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import splu

from dphist.arrays import FloatArray, Int64Array

Places = Int64Array | FloatArray


@dataclass(eq=False)
class MeasuredRuns:
    """Noisy counts of runs of buckets, each with its variance.

    >>> runs = MeasuredRuns(2)
    >>> runs.add(np.array([0, 1]), np.array([1, 2]), np.array([4.0, 6.0]), np.array([1.0, 1.0]))
    >>> runs.add(np.array([0]), np.array([2]), np.array([13.0]), np.array([1.0]))
    >>> runs.solve().round(9).tolist()
    [5.0, 7.0]
    """

    buckets: int
    _runs: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]] = field(default_factory=list)

    def add(self, starts: Places, ends: Places, noisy: FloatArray, variances: FloatArray) -> None:
        """Add independent measurements of the counts of the runs [start, end).

        A fractional position lies inside a bucket, which is then treated as uniform.
        """
        self._runs.append((starts.astype(np.float64), ends.astype(np.float64), noisy, variances))

    def solve(self) -> FloatArray:
        """Return the buckets' counts by least squares.

        Guarantee: post-processing; the best linear unbiased estimate. Every edge must be reached by runs.
        Cost: near-linear for nested runs: they are a planar network, which elimination keeps sparse.
        """
        runs, conductance = self._network
        noisy = np.concatenate([added[2] for added in self._runs])
        return np.diff(self._factors.solve(runs.T @ (conductance * noisy)), prepend=0.0)

    def _between(self, positions: FloatArray) -> tuple[Int64Array, FloatArray]:
        """Return the edge at or before each position, and how far beyond it the position is."""
        below = np.minimum(positions.astype(np.int64), self.buckets - 1)
        return below, positions - below

    @cached_property
    def _network(self) -> tuple[Any, FloatArray]:
        """Return each run as a difference of edges (the first edge is grounded), and its conductance."""
        starts, ends, _, variances = (np.concatenate(column) for column in zip(*self._runs, strict=True))
        (start, after_start), (end, after_end) = self._between(starts), self._between(ends)
        runs = coo_array(
            (
                np.concatenate([1.0 - after_end, after_end, after_start - 1.0, -after_start]),
                (np.tile(np.arange(starts.size), 4), np.concatenate([end, end + 1, start, start + 1])),
            ),
            shape=(starts.size, self.buckets + 1),
        ).tocsr()[:, 1:]
        runs.eliminate_zeros()
        return runs, 1.0 / variances

    @cached_property
    def _factors(self) -> Any:
        """The factors of the network's Laplacian, with its first edge grounded."""
        runs, conductance = self._network
        laplacian = (runs.T @ diags_array(conductance) @ runs).tocsc()
        options = {"SymmetricMode": True}
        return splu(laplacian, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
