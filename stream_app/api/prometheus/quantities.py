"""Numbers of many bins, for Prometheus: counts, sums or means, of all events or key by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dphist.arrays import FloatArray
from dphist.laws.interval import half_widths
from dphist.tree.estimate import Estimate
from stream_app.api.admission.work import POINT_US, slices_us
from stream_app.api.answers.ranges import reach
from stream_app.api.metrics.names import Of, Quantity, Statistic
from stream_app.api.schemas import DEFAULT_CONFIDENCE
from stream_app.core.answers.answered import SeriesPoints as Points
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import means_over, sums_of_keys, sums_over
from stream_app.core.kinds.tables import Span

Columns = dict[Statistic, list[list[float]]]  # a list per key, of the ends of bins

FEW_KEYS = 2
_MEAN_US = 10_000


def reading(of: Of, places: int, bins: int, view: StreamView) -> float:
    """Return an estimate, in microseconds, of the time of ``read``. Args: places, how many keys, or 1."""
    if of == "mean":
        return places * bins * _MEAN_US
    return places * bins * POINT_US if places <= FEW_KEYS else slices_us(view, bins)


def read(
    view: StreamView,
    of: Of,
    quantity: Quantity,
    places: Sequence[int | None],
    parts: Sequence[Statistic],
    bins: Sequence[int],
    together: int = 1,
) -> Columns:
    """Return the parts of a quantity at the ends of measured bins, for each key index (None: all events).

    Args: together, how many bins a count or a sum of bins adds up: the last ones.
    A mean is NaN where the estimated count is not above 0, and has no standard error.
    Cost: as ``reading`` says; a few keys are read one by one, many keys of a bin at once.
    """
    labels = tuple(keys.place_of_label) if (keys := view.strategy.axes.keys) else ()
    names = [None if place is None else labels[place] for place in places]
    if of == "mean":
        return _means(view, quantity, names, parts, bins)
    if len(places) > FEW_KEYS:
        of_bin = sums_of_keys if of == "sum" else StreamView.counts_of_keys
        spans = [
            Span(view.span.start if quantity == "running" else bin + 1 - together, bin + 1) for bin in bins
        ]
        estimates = _of_keys(view, of_bin, [place for place in places if place is not None], spans)
        return {part: part_of(estimates, part, len(places)).T.tolist() for part in parts}
    most, (starts, stops) = max(2, len(bins)), view.ends_of(quantity, bins)
    starts = starts if quantity == "running" else stops - together
    if of == "sum":
        points = [sums_over(view, quantity, starts, stops, name, points=most) for name in names]
    else:
        views = map(view.of_key, names)
        points = [one.over_ranges(quantity, "unbiased", starts, stops, most) for one in views]
    return {part: [_part_of_points(one, part) for one in points] for part in parts}


def _means(
    view: StreamView,
    quantity: Quantity,
    names: Sequence[str | None],
    parts: Sequence[Statistic],
    bins: Sequence[int],
) -> Columns:
    ranges = view.ends_of(quantity, bins)
    most = max(2, len(bins))
    found = [means_over(view, quantity, *ranges, name, DEFAULT_CONFIDENCE, most).means for name in names]
    of_parts = {part: [[getattr(mean, part) for mean in means] for means in found] for part in parts}
    return {part: np.array(rows, np.float64).tolist() for part, rows in of_parts.items()}


def _part_of_points(points: Points, part: Statistic) -> list[float]:
    found: FloatArray = points.values
    if part == "stderr":
        found = points.laws.deviations()
    elif part != "value":
        halves = half_widths(points.laws, DEFAULT_CONFIDENCE)[0] + points.roundings
        found = points.values - halves if part == "lower" else points.values + halves
    return [float(one) for one in found]


def _of_keys(
    view: StreamView,
    of_bin: Callable[[StreamView, Span], Estimate],
    places: Sequence[int],
    spans: Sequence[Span],
) -> list[Estimate]:
    """Return a quantity of many keys over ranges; all keys of a range are read at once."""
    estimates = []
    for span in spans:
        all_keys = of_bin(view, span)
        # Keep only the requested keys, because many bins of all keys would not fit in memory.
        estimates.append(replace(all_keys, value=np.asarray(all_keys.value)[list(places)]))
    return estimates


def part_of(estimates: Sequence[Estimate], part: Statistic, width: int) -> FloatArray:
    """Return one number of each estimate: value, standard error, or lower or upper end of its interval.

    Returns: shape (estimates, width), one column per key.
    Cost: 50 microseconds per estimate for ends of intervals, for any number of keys.
    """
    values = np.array([one.value for one in estimates], dtype=np.float64).reshape(len(estimates), width)
    if part == "value" or not estimates:
        return values
    if part == "stderr":
        return np.broadcast_to(np.array([[one.stderr] for one in estimates]), values.shape)
    halves = reach(estimates, DEFAULT_CONFIDENCE)[:, np.newaxis]
    return np.asarray(values - halves if part == "lower" else values + halves)
