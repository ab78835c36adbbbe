"""Counts without noise as whole numbers: sums of doubles and stored roundings leave errors far below 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dphist.arrays import FloatArray
from dphist.tree.estimate import Estimate
from stream_app.core.answers.answered import SeriesPoints

_LEAST = 1e-9  # rounding errors of sums of doubles, of counts below 10^6, where no bound is stated


def whole_estimate(found: Estimate) -> Estimate:
    """Return an estimate of counts without its rounding error, if it has no noise.

    A true count is a whole number. If the law of the error is 0, the true count is at most ``rounding`` away,
    and so it is known. An estimate with noise, or one that is not near a whole number, stays as it is.

    >>> from dphist.laws.law import WeightedNoise
    >>> whole_estimate(Estimate(12.000000001, 0.0, WeightedNoise.of([]), 1e-6)).interval().upper
    12.0
    """
    if found.variance > 0.0:
        return found
    whole = np.rint(found.value)
    if np.any(np.abs(whole - found.value) > _bound(np.asarray(found.rounding))):
        return found
    return replace(found, value=whole if np.ndim(whole) else float(whole), rounding=0.0)


def whole_points(found: SeriesPoints) -> SeriesPoints:
    """Return points of counts without the rounding errors of those that have no noise."""
    whole = np.rint(found.values)
    near = np.abs(whole - found.values) <= _bound(found.roundings)
    known = near & (found.laws.deviations() == 0.0)
    values, roundings = np.where(known, whole, found.values), np.where(known, 0.0, found.roundings)
    return replace(found, values=values, roundings=roundings)


def _bound(roundings: FloatArray) -> FloatArray:
    """Return how far rounding may have moved a count; 0.4 at most, or another whole number would be near."""
    return np.asarray(np.minimum(np.maximum(roundings, _LEAST), 0.4))
