"""Merge similar neighbouring pieces into buckets, so that the total cost of the buckets is least."""

import math

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.mechanisms.dawa.partition import edges_of, least_cost_partition

# Up to this many pieces every run may be a bucket; with more pieces, only runs of 1, 2, 4, 8, ... pieces.
ALL_RUNS = 4096
# In units of log-likelihood, a bucket of k of the m pieces costs 2 + (2 + 1.2 ln(m / 64)) / k. Short buckets
# cost more because single pieces have large Laplace noise, and of many pieces some look odd by chance.
_BUCKET_COST = 2.0
_SHORT_COST = 2.0
_SHORT_COST_GROWTH = 1.2


def uniform_buckets(
    noisy: FloatArray, widths: Int64Array, variances: FloatArray, *, price: float | None = None
) -> Int64Array:
    """Return the bucket edges, as numbers of pieces, for which the total cost of the buckets is smallest.

    A bucket's cost is a price plus half the weighted sum of squared differences between its pieces' counts
    and counts that are uniform in the bucket: a Gaussian likelihood with a penalty.

    Args: noisy counts, widths in bins and variances of the m pieces; price of a bucket, by default 2 or more.
    Returns: shape (buckets + 1,), 0 to m.
    Cost: O(m^2) up to 4096 pieces, in vectors of m; O(m log m) beyond.

    >>> uniform_buckets(np.array([0.0, 1, 0, 50, 49]), np.ones(5, dtype=np.int64), np.ones(5)).tolist()
    [0, 3, 5]
    """
    # Limit variances from below by the precision of a sum of squares in doubles.
    weights = 1.0 / np.maximum(variances, 2.0**-46 * float(noisy @ noisy))
    sums = np.zeros((3, noisy.size + 1))
    np.cumsum(
        [weights * noisy**2, weights * widths * noisy, weights * widths.astype(float) ** 2],
        axis=1,
        out=sums[:, 1:],
    )
    if price is not None:
        prices = price, 0.0
    else:
        prices = _BUCKET_COST, _SHORT_COST + _SHORT_COST_GROWTH * max(0.0, math.log(noisy.size / 64))
    if noisy.size <= ALL_RUNS:
        return _cheapest_runs(sums, prices)
    lengths = [1 << power for power in range(noisy.size.bit_length())]
    costs = [(length, _costs(sums[:, :-length], sums[:, length:], length, prices)) for length in lengths]
    return least_cost_partition(noisy.size, costs)


def _costs(
    before: FloatArray, until: FloatArray, pieces: int | Int64Array, prices: tuple[float, float]
) -> FloatArray:
    """Return the cost of each run of pieces that lies between two columns of running sums.

    Args: pieces, the length of each run; prices, one per bucket, and one that is divided by its length.
    """
    squares, products, widths = until - before
    each, short = prices
    return np.asarray(0.5 * (squares - products**2 / widths) + each + short / pieces)


def _cheapest_runs(sums: FloatArray, prices: tuple[float, float]) -> Int64Array:
    """Return the edges of the division into runs whose costs have the least sum."""
    size = sums.shape[1] - 1
    best = np.zeros(size + 1)
    chosen = [0] * (size + 1)
    for end in range(1, size + 1):
        lengths = np.arange(end, 0, -1)
        totals = best[:end] + _costs(sums[:, :end], sums[:, end : end + 1], lengths, prices)
        start = int(np.argmin(totals))
        best[end], chosen[end] = totals[start], end - start
    return edges_of(chosen)
