"""What noise does to a rule before it runs. Errors do not depend on events, so no event is needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dphist.laws.law import WeightedNoise
from dphist.product.answers import Cdf, Histogram
from dphist.product.columns import ColumnSum
from dphist.product.forest import RangeSum
from dphist.tree.estimate import Estimate
from stream_app.core.alerts.ranges import columns_asked, places_of
from stream_app.core.alerts.readings import margins
from stream_app.core.alerts.rules import Rule
from stream_app.core.kinds import Kind
from stream_app.core.strategy import Strategy

SEEN = 0.95  # the probability with which a release shows a change of the size ``seen``
_MOST_RELEASES = 256  # of an epoch, whose errors are computed


@dataclass(frozen=True, slots=True)
class Forecast:
    """The errors of a rule's value, in events (ks: in shares): medians over the releases of an epoch.

    Args:
        stderr: the standard error.
        margin: the distance of the estimate past the threshold from which the condition holds.
        seen: the distance of the true value from which the condition holds with probability ``SEEN`` at a
            release.
    """

    stderr: float
    margin: float
    seen: float


def forecast(rule: Rule, strategy: Strategy, bin_us: int, events: float | None = None) -> Forecast:
    """Return the forecast of a rule over a stream.

    Args: events, the number in a window, for ks.
    Raises: ValueError for a window that is longer than an epoch, or ks without a number of events.
    Cost: up to a second.
    """
    condition, horizon = rule.condition, strategy.kind.design.horizon
    window = None if condition.window_us is None else condition.window_us // bin_us
    if window is not None and window > horizon:
        raise ValueError("its window is longer than an epoch; shorten it")
    if condition.measure == "ks" and strategy.kind.product is not None:
        return _of_distance(rule, strategy, bin_us, events)
    axes = strategy.kind.axes
    columns = None if axes is None else columns_asked(condition, axes, strategy.declared.cells)
    past = condition.reference
    if past is None:
        estimates = _estimates(strategy.kind, columns, window)
    elif past.length_us // bin_us > horizon:
        raise ValueError("its past is longer than an epoch; shorten it")
    else:
        estimates = _differences(rule, strategy.kind, columns, bin_us)
    sure, seen = (np.array(margins(estimates, level)) for level in (rule.confidence, SEEN))
    stderr = float(np.median([one.stderr for one in estimates]))
    return Forecast(stderr, float(np.median(sure)), float(np.median(sure + seen)))


def _estimates(kind: Kind, columns: ColumnSum | None, window: int | None) -> list[Estimate]:
    """Return estimates without events: of the last ``window`` bins, None for all, at many releases."""
    errors, horizon = kind.errors(columns=columns), kind.design.horizon
    releases = np.unique(np.linspace(window or 1, horizon, _MOST_RELEASES, dtype=int)).tolist()
    found = []
    for closed in releases:
        start = 0 if window is None else closed - window
        law, rounding = errors.within(closed, np.array([start]), np.array([closed])).error(0)
        found.append(Estimate(0.0, law.variance, law, rounding))
    return found


def _differences(rule: Rule, kind: Kind, columns: ColumnSum | None, bin_us: int) -> list[Estimate]:
    """Return estimates without events of a window less its past, at many releases of one epoch of many."""
    condition, horizon, errors = rule.condition, kind.design.horizon, kind.errors(columns=columns)
    window, past, back = _lengths(rule, bin_us)
    assert condition.threshold is not None
    found = []
    for closed in np.unique(np.linspace(window, horizon, _MOST_RELEASES, dtype=int)).tolist():
        ranges = (closed - window, closed, 1.0), (closed - back, closed - back + past, -condition.threshold)
        laws = []
        for number in range(-(-max(back - closed, 0) // horizon) + 1):  # this epoch, and those before
            first, bins = -number * horizon, horizon if number else closed
            own = [(max(a - first, 0), min(b - first, bins), weight) for a, b, weight in ranges]
            laws.append(errors.weighted(bins, tuple(one for one in own if one[0] < one[1])))
        law = WeightedNoise.joined(laws)
        found.append(Estimate(0.0, law.variance, law))
    return found


def _of_distance(rule: Rule, strategy: Strategy, bin_us: int, events: float | None) -> Forecast:
    """Return the forecast of a ks rule, from the bands around both distributions at the end of an epoch.

    Each band is wrong half as often as the rule may be.
    """
    if events is None:
        raise ValueError("how sure a distance is depends on the events in a window; add --events NUMBER")
    product, horizon = strategy.kind.product, strategy.kind.design.horizon
    assert product is not None
    window, reference, back = _lengths(rule, bin_us)
    if max(window, back) > horizon:
        raise ValueError("its ranges are longer than an epoch; shorten them")
    keys = places_of(rule.condition, strategy.declared.cells)
    then = horizon - back
    spans = ((horizon - window, horizon), (then, then + reference))
    compared = [Histogram.of(RangeSum.without_events(product, span), keys) for span in spans]
    numbers = np.array([events, events * reference / window])

    def bands(confidence: float) -> list[Cdf]:
        return [one.cdf((1.0 + confidence) / 2.0) for one in compared]

    def reach(confidence: float) -> float:
        return float(([np.median(band.reach) for band in bands(confidence)] / numbers).sum())

    stderrs = [np.median(band.stderr) for band in bands(rule.confidence)] / numbers
    margin = reach(rule.confidence)
    return Forecast(float(np.hypot(*stderrs)), margin, margin + reach(SEEN))


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
