"""Least squares over measured runs of buckets, which may overlap.

The count of a run is the difference of two running counts, one at each end. So the equations of least squares
are those of a network of resistors: running counts are potentials, and a measurement of variance s is a
resistor of s ohms between the run's two ends.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import splu

from dphist.arrays import FloatArray, Int64Array


class MeasuredRuns(NamedTuple):
    """Independent noisy counts of the runs [start, end) of buckets, each with its variance.

    A fractional position lies inside a bucket, which is then treated as uniform.
    """

    starts: Int64Array | FloatArray
    ends: Int64Array | FloatArray
    noisy: FloatArray
    variances: FloatArray


def fit_runs(buckets: int, measured: Iterable[MeasuredRuns]) -> FloatArray:
    """Return the buckets' counts by least squares. The measured runs must connect all edges of buckets.

    Guarantee: post-processing; the best linear unbiased estimate.
    Cost: near-linear for nested runs, whose sparse matrix stays sparse when it is factored.

    >>> singles = MeasuredRuns(np.array([0, 1]), np.array([1, 2]), np.array([4.0, 6.0]), np.ones(2))
    >>> both = MeasuredRuns(np.array([0]), np.array([2]), np.array([13.0]), np.ones(1))
    >>> fit_runs(2, [singles, both]).round(9).tolist()
    [5.0, 7.0]
    """
    starts, ends, noisy, variances = (np.concatenate(column) for column in zip(*measured, strict=True))
    # The edges at or before the two ends of each run, and how far beyond them the ends are.
    start, end = (np.minimum(places.astype(np.int64), buckets - 1) for places in (starts, ends))
    after_start, after_end = starts - start, ends - end
    parts = np.concatenate([1.0 - after_end, after_end, after_start - 1.0, -after_start])
    places = np.tile(np.arange(starts.size), 4), np.concatenate([end, end + 1, start, start + 1])
    # Each run as a difference of edges; the first edge is grounded.
    runs = coo_array((parts, places), shape=(starts.size, buckets + 1)).tocsr()[:, 1:]
    runs.eliminate_zeros()
    conductance = 1.0 / variances
    laplacian = (runs.T @ diags_array(conductance) @ runs).tocsc()
    options = {"SymmetricMode": True}
    factors = splu(laplacian, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    return np.diff(factors.solve(runs.T @ (conductance * noisy)), prepend=0.0)
