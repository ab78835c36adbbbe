"""Stage 3 of DAWA: spread buckets over bins, and express ranges of bins as ranges of buckets."""

from __future__ import annotations

import numpy as np

from dphist.arrays import FloatArray, Int64Array


def bucket_counts(counts: Int64Array, edges: Int64Array) -> Int64Array:
    """Sum the counts of each bucket.

    >>> bucket_counts(np.array([2, 3, 8, 1, 0, 2, 0, 4, 2, 4]), np.array([0, 2, 3, 7, 10])).tolist()
    [5, 8, 3, 10]
    """
    return np.add.reduceat(counts, edges[:-1])


def uniform_expansion(buckets: FloatArray, edges: Int64Array) -> FloatArray:
    """Spread each bucket's count evenly over its bins.

    Source: Li et al. (2014), definition 1.

    >>> uniform_expansion(np.array([6.3, 7.1, 3.6, 8.4]), np.array([0, 2, 3, 7, 10])).round(2).tolist()
    [3.15, 3.15, 7.1, 0.9, 0.9, 0.9, 0.9, 2.8, 2.8, 2.8]
    """
    widths = np.diff(edges)
    return np.repeat(buckets / widths, widths)


def bucket_positions(bin_edges: Int64Array, edges: Int64Array) -> FloatArray:
    """Return bin edges as positions among the buckets; an edge inside a bucket has a fractional position.

    The range of buckets between two positions is the paper's transformed query.
    Source: Li et al. (2014), definition 6; example 3 is this one.

    >>> bucket_positions(np.array([1, 6]), np.array([0, 2, 3, 7, 10])).tolist()
    [0.5, 2.75]
    """
    return np.interp(bin_edges, edges, np.arange(edges.size))
