"""Forecast of a ks rule: simulate the noise of two ranges and try the rule's certified bound on it.

The effect of noise on a share depends on the number of events, so the caller states that number. The truth is
the hardest case: the reference is uniform, and at every bucket the window differs from it by the threshold.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dphist.arrays import BoolArray
from dphist.noise import SeededNoise
from dphist.product.answers import Cdf
from dphist.product.design import ProductDesign
from dphist.product.distance import distance_bounds
from stream_app.core.alerts.axis_noise import HistogramNoise
from stream_app.core.alerts.forecast import Forecast, tried
from stream_app.core.alerts.rules import Rule

PATHS = 64
RELEASES = 48  # each needs two bands
_SHIFTS = 4  # releases at which the truth shifts, on every path


def forecast_distance(
    rule: Rule,
    product: ProductDesign,
    keys: tuple[int, ...] | None,
    bin_us: int,
    events: float,
    noise: SeededNoise,
    shift_stderrs: float = 3.0,
) -> Forecast:
    """Return the forecast of a ks rule; all its values are shares.

    Args: keys, places in the list, None for all; events, the number in a window.
    Raises: ValueError for ranges that are longer than an epoch.
    Cost: up to a minute.
    """
    window, reference, back = _lengths(rule, bin_us)
    first = max(window, back)
    releases = min(RELEASES, product.time.horizon - first + 1)
    if releases < 2:
        raise ValueError(f"{rule.name}: its ranges are longer than an epoch; shorten them")
    drawn = HistogramNoise(product, keys, noise, first + releases - 1, PATHS)
    confidence = (1.0 + rule.confidence) / 2.0
    bands: list[tuple[Cdf, Cdf]] = []
    for bin in range(first + releases - 1):
        drawn.close()
        stop = bin + 1
        if stop >= first:
            ranges = ((stop - window, stop), (stop - back, stop - back + reference))
            now, then = (drawn.band(a, b, confidence) for a, b in ranges)
            bands.append((now, then))
    return _tried(rule, bands, events, events * reference / window, bin_us, shift_stderrs)


def _tried(
    rule: Rule,
    bands: list[tuple[Cdf, Cdf]],
    events: float,
    before: float,
    bin_us: int,
    shift_stderrs: float,
) -> Forecast:
    """Return the forecast. Args: bands, of simulated noise; events, before: in window and reference."""
    threshold, upward = rule.condition.threshold, rule.condition.upward
    assert threshold is not None
    stderrs = np.array([_stderr(now, then, events, before) for now, then in bands])
    shift = shift_stderrs * float(np.median(stderrs))
    shift = min(shift, 1.0 - threshold) if upward else -min(shift, threshold)
    buckets = len(bands[0][0].values)
    shares = (np.arange(buckets) + 1.0)[:, np.newaxis] / buckets

    def past(release: int, part: float) -> BoolArray:
        now, then = bands[release]
        truth = np.minimum(shares + (threshold + shift * part), 1.0)
        lower, upper = distance_bounds(
            replace(now, values=events * truth + now.values),
            replace(then, values=before * shares + then.values),
        )
        return np.asarray(lower > threshold if upward else upper < threshold)

    reach = np.array([_reach(now, then, events, before) for now, then in bands])
    return tried(rule, bin_us, past, _SHIFTS, stderr=stderrs, margin=reach, shift=shift)


def _stderr(now: Cdf, then: Cdf, events: float, before: float) -> float:
    """Return the standard error of the difference of two shares, in the middle of the buckets."""
    return math.hypot(float(np.median(now.stderr)) / events, float(np.median(then.stderr)) / before)


def _reach(now: Cdf, then: Cdf, events: float, before: float) -> float:
    return float(np.median(now.reach)) / events + float(np.median(then.reach)) / before


def _lengths(rule: Rule, bin_us: int) -> tuple[int, int, int]:
    """Return the bins of the window, of the reference, and from the reference's start to the window's end."""
    condition = rule.condition
    reference, window_us = condition.reference, condition.window_us
    assert reference is not None
    assert window_us is not None
    length_us, ago_us = reference.length_us, reference.ago_us
    if reference.from_us is not None and reference.to_us is not None:
        # A fixed range has noise like that of a range of the same length right before the window.
        length_us, ago_us = reference.to_us - reference.from_us, window_us
    return window_us // bin_us, length_us // bin_us, ago_us // bin_us + length_us // bin_us
