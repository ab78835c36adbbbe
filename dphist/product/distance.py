"""The Kolmogorov-Smirnov distance between two distributions, from noisy cumulative counts.

A share is a quotient of two noisy counts, so its law has no closed form. But if the bands of both
distributions contain the true counts, quotients of their edges bound every true share, and so the distance.
"""

from dataclasses import dataclass

import numpy as np

from dphist.arrays import FloatArray
from dphist.laws.order_statistic import LARGEST_CONFIDENCE
from dphist.product.answers import Cdf, Histogram

# Each of the two bands may miss half as often.
LARGEST_DISTANCE_CONFIDENCE = 2 * LARGEST_CONFIDENCE - 1


@dataclass(frozen=True)
class Distance:
    """The largest distance between two distributions, with lower and upper bounds."""

    value: float
    lower: float
    upper: float


def ks_estimate(one: Histogram, other: Histogram) -> float:
    """Return the distance between the two estimated distributions, without its error. Cost: O(buckets).

    The estimate is biased upwards: it is the largest of many noisy differences.
    """
    return float(np.abs(_shares(one.buckets.cumsum()) - _shares(other.buckets.cumsum())).max())


def ks_distance(one: Histogram, other: Histogram, confidence: float = 0.95) -> Distance:
    """Return max over t of |F(t) / N - G(t) / M|, with an interval that contains the true distance.

    Guarantee: the interval contains the true distance with at least this confidence, except for two chances
        in a million (``band.sup_error``), even if the noise of the two is not independent. The distance to a
        distribution without events is 0.
    Args: two histograms over the same buckets.
    Raises: ValueError for other buckets, or a confidence outside (0, 0.998].
    Cost: two bands (``band.sup_error``).
    """
    if one.axis.buckets != other.axis.buckets:
        raise ValueError(f"distance: {one.axis.buckets} and {other.axis.buckets} buckets; give the same ones")
    if not 0.0 < confidence <= LARGEST_DISTANCE_CONFIDENCE:
        raise ValueError(f"confidence: {confidence!r} is outside (0, {LARGEST_DISTANCE_CONFIDENCE:.3f}]")
    each = (1.0 + confidence) / 2.0
    lower, upper = distance_bounds(one.cdf(each), other.cdf(each))
    return Distance(ks_estimate(one, other), float(lower), float(upper))


def distance_bounds(one: Cdf, other: Cdf) -> tuple[FloatArray, FloatArray]:
    """Return bounds on the distance that are true if both bands contain the true counts.

    Args: bands with values of shape (buckets, ...), for example one column per draw.
    """
    (low, high), (other_low, other_high) = share_bounds(one), share_bounds(other)
    least = np.maximum(low - other_high, other_low - high).max(axis=0)
    most = np.maximum(high - other_low, other_high - low).max(axis=0)
    return np.maximum(least, 0.0), np.minimum(most, 1.0)


def share_bounds(cdf: Cdf) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest share of events up to each bucket that a band allows."""
    lower, upper = cdf.lower, cdf.upper
    least, most = lower[-1], upper[-1]
    low = np.divide(lower, most, out=np.zeros_like(lower), where=most > 0)
    high = np.divide(upper, least, out=np.ones_like(upper), where=least > 0)
    low[-1] = np.where(least > 0, 1.0, low[-1])
    return np.minimum(low, 1.0), np.minimum(high, 1.0)


def _shares(cumulative: FloatArray) -> FloatArray:
    """Return cumulative counts as shares that never fall; zeros if the estimated total is 0."""
    total = cumulative[-1]
    if total <= 0:
        return np.zeros_like(cumulative)
    return np.asarray(np.clip(np.maximum.accumulate(cumulative) / total, 0.0, 1.0), np.float64)
