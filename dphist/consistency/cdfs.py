"""Consistent CDFs: the closest whole numbers in [0, N] that never fall and end at N."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import FloatArray, Int64Array
from dphist.consistency.isotonic import isotonic_integers, isotonic_median

Error = Literal["absolute", "squared"]


def consistent_cdf(values: ArrayLike, total: int, error: Error = "squared") -> Int64Array:
    """Return the consistent cumulative counts closest to the published ones.

    Isotonic regression over whole numbers finds the optimum that the paper searches for with a dynamic
    programme, at a cost that does not depend on the total.

    Args: values of shape (m,), the published cumulative counts; total, the number of events N, public or
        itself published; error, the distance to minimise.
    Returns: (m,) int64, non-decreasing, in [0, N], the last one N.
    Raises: ValueError for no values, values that are not finite, a negative total, an unknown error.
    Cost: O(m) squared, O(m log m) absolute.
    Source: Rameshwar, Tandon, "Optimal Tree-Based Mechanisms for DP Approximate CDFs", section VI.

    >>> consistent_cdf([-2.0, 5.0, 3.0, 9.0, 11.0], total=10).tolist()
    [0, 4, 4, 9, 10]
    """
    points, total = _checked(values, total)
    if error not in ("absolute", "squared"):
        raise ValueError(f"error {error!r} is not known; choose 'absolute' or 'squared'")
    search = isotonic_integers if error == "squared" else isotonic_median
    return np.append(search(points[:-1], 0, total), np.int64(total))


def rising_cdfs(cdfs: ArrayLike) -> Int64Array:
    """Return the CDFs of several times, changed so that no cumulative count falls over time.

    Each result is the mean, rounded down, of the maximum over all times so far and the minimum over all later
    times. Both also rise along each CDF, and so does their mean. CDFs that already rise stay as they are.

    Guarantee: the largest error does not grow, because the true counts rise over time.
    Args: cdfs of shape (times, m), whole, each non-decreasing: one row of cumulative counts per time.
    Returns: (times, m) int64, non-decreasing along both.
    Raises: ValueError for another shape, or a CDF that falls.
    Cost: O(times * m).

    >>> rising_cdfs([[1, 4], [0, 6], [3, 5]]).tolist()
    [[0, 4], [0, 5], [3, 5]]
    """
    given = np.asarray(cdfs)
    if given.ndim != 2 or given.size == 0 or given.dtype.kind not in "iu":
        raise ValueError(f"cdfs need shape (times, m) of whole numbers; got {given.dtype} {given.shape}")
    if (np.diff(given, axis=1) < 0).any():
        raise ValueError("cdfs: one of them falls; make each consistent first")
    above = np.maximum.accumulate(given, axis=0)
    below = np.minimum.accumulate(given[::-1], axis=0)[::-1]
    return np.asarray((above + below) // 2, dtype=np.int64)


def _checked(values: ArrayLike, total: int) -> tuple[FloatArray, int]:
    points = np.asarray(values, dtype=np.float64)
    if points.ndim != 1 or points.size == 0 or not np.isfinite(points).all():
        raise ValueError(
            f"cumulative counts need shape (m,), m >= 1, of finite numbers; got shape {points.shape}"
        )
    if total != int(total) or total < 0:
        raise ValueError(f"total {total!r} is not a whole number of at least 0")
    return points, int(total)
