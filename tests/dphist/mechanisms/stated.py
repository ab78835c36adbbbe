"""Read the variances of a release that must state them."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dphist.arrays import FloatArray
from dphist.mechanisms import HistogramRelease


def stated_variance(made: HistogramRelease, ranges: ArrayLike) -> FloatArray:
    """Return the variances that a release states of its answers. Raises: AssertionError if it states none."""
    stated = made.variance(ranges)
    assert stated is not None
    return stated
