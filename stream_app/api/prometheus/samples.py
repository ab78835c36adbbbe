"""One stream's samples for Prometheus, one per bin at the bin's end: pure functions of its view."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.laws.interval import half_widths
from dphist.tree.estimate import Estimate
from stream_app.api.admission.work import POINT_US, slices_us
from stream_app.api.answers.ranges import reach
from stream_app.api.prometheus.metrics import (
    KEY_METRICS,
    METRICS,
    Metric,
    Of,
    Quantity,
    Statistic,
    labels_of_stream,
    metrics_of,
)
from stream_app.api.prometheus.promql import NAME_LABEL, PromQLError, Selector, parse_selector
from stream_app.api.schemas import DEFAULT_CONFIDENCE, MAX_POINTS
from stream_app.core.answers.answered import SeriesPoints
from stream_app.core.answers.asked_keys import labels_of_keys
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import means_over, sums_of_keys, sums_over
from stream_app.core.kinds.tables import Span

Columns = dict[Statistic, list[list[float]]]  # a list per key, of the ends of bins
Shape = Literal["vector", "matrix"]
SHORTEST_LOOKBACK_US = 300_000_000  # Prometheus' own
MOST_VALUES = 4 * MAX_POINTS  # in one answer, over all series
FEW_KEYS = 2
_MEAN_US = 10_000
_LABEL_US = 8.0  # comparing a label with a selector, and naming its series
_VALUE_US = 2.0  # writing a value
_OWN_LABELS = 16  # of a stream, beside its keys
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True)
class BinSeries:
    """One series of a stream: the value, standard error or interval end of a quantity, over all keys or one.

    Args: place, the key's index in the list; None for all events.
    """

    place: int | None
    metric: Metric
    labels: dict[str, str]


def bin_at(view: StreamView, time_us: int, step_us: int = 0) -> int | None:
    """Return the last bin that had ended at a time; None before the first bin and long after the last.

    A sample is valid until the next one. The last sample is valid for as long as the next may take: two bins
    and the grace, but at least Prometheus' five minutes and the step of the query.
    """
    binning, (first, stop) = view.binning, view.span
    bin = int(binning.bin_of(np.array([time_us], dtype=np.int64))[0]) - 1
    last = min(bin, stop - 1)
    if last < first:
        return None
    patience_us = 2 * binning.bin_us + view.declared.time.grace_us
    age_us = time_us - binning.end_us(last)
    return last if age_us < max(SHORTEST_LOOKBACK_US, patience_us, step_us) else None


def values_of(
    view: StreamView, wanted: Sequence[BinSeries], bins: Sequence[int], together: int = 1
) -> list[dict[int, float]]:
    """Return each series' values at the ends of bins, without bins that were never measured.

    A mean has no value where the estimated count is not above 0. Cost: ``reading_us``.
    Args: together, how many bins a value adds up, unless it is a running one: the last ones.
    """
    first = view.span.start + together - 1
    known = [bin for bin in bins if bin >= first and not view.unmeasured(Span(bin + 1 - together, bin + 1))]
    found: dict[tuple[Of, Quantity, Statistic, int | None], list[float]] = {}
    for (of, quantity, _), group in _groups(wanted).items():
        places = list(dict.fromkeys(one.place for one in group))
        parts = list(dict.fromkeys(one.metric.part for one in group))
        for part, columns in read(view, of, quantity, places, parts, known, together).items():
            found |= {(of, quantity, part, place): row for place, row in zip(places, columns, strict=True)}
    rows = [found[one.metric.of, one.metric.quantity, one.metric.part, one.place] for one in wanted]
    return [{bin: value for bin, value in zip(known, row, strict=True) if value == value} for row in rows]


def reading_us(view: StreamView, wanted: Sequence[BinSeries], bins: int) -> float:
    """Return an estimate, in microseconds, of the time to read these series at ``bins`` instants."""
    groups = _groups(wanted).items()
    return sum(reading(of, len({one.place for one in group}), bins, view) for (of, _, _), group in groups)


def _groups(wanted: Sequence[BinSeries]) -> dict[tuple[Of, Quantity, bool], list[BinSeries]]:
    """Return the series in groups that are read together: of keys, or of all events."""
    groups: dict[tuple[Of, Quantity, bool], list[BinSeries]] = {}
    for one in wanted:
        groups.setdefault((one.metric.of, one.metric.quantity, one.place is None), []).append(one)
    return groups


def selected(view: StreamView, selectors: Sequence[Selector]) -> Iterator[BinSeries]:
    """Yield a view's series that match any of the selectors; all series without selectors.

    Cost: each label is compared once with each selector, for any number of metrics.
    """
    common = labels_of_stream(view)
    keys = view.strategy.axes.keys
    labels = [] if keys is None else [*labels_of_keys(keys)]
    names = list(labels[0]) if labels else ["key"]
    of_keys = [(one.without(*names), _places(one, names, labels)) for one in selectors]
    for name, metric in metrics_of(view, METRICS).items():
        own = {NAME_LABEL: name, **common}
        if not selectors or any(one.matches(own) for one in selectors):
            yield BinSeries(None, metric, own)
    for name, metric in metrics_of(view, KEY_METRICS).items():
        of_metric = {NAME_LABEL: name, **common}
        wanted = [places for of_others, places in of_keys if of_others.matches(of_metric)]
        for place in sorted(set().union(*wanted)) if selectors else range(len(labels)):
            yield BinSeries(place, metric, of_metric | labels[place])


def _places(selector: Selector, names: Sequence[str], labels: Sequence[Mapping[str, str]]) -> set[int]:
    """Return the indices of the keys that match a selector's conditions on the key and its fields."""
    of_key = [one for one in selector.matchers if one.label in names]
    return {place for place, own in enumerate(labels) if all(one.matches(own) for one in of_key)}


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
    most, (starts, stops) = max(2, len(bins)), _ranges_of(view, quantity, bins)
    starts = starts if quantity == "running" else stops - together
    if of == "sum":
        points = [sums_over(view, quantity, starts, stops, name, points=most) for name in names]
    else:
        views = map(view.of_key, names)
        points = [one.over_ranges(quantity, "unbiased", starts, stops, most) for one in views]
    return {part: [_part_of_points(one, part) for one in points] for part in parts}


def _ranges_of(view: StreamView, quantity: Quantity, bins: Sequence[int]) -> tuple[Int64Array, Int64Array]:
    """Return the ranges of running counts at the ends of measured bins, or of these bins alone."""
    places = np.array(bins, dtype=np.int64)
    return (np.full_like(places, view.span.start) if quantity == "running" else places), places + 1


def _means(
    view: StreamView,
    quantity: Quantity,
    names: Sequence[str | None],
    parts: Sequence[Statistic],
    bins: Sequence[int],
) -> Columns:
    ranges = _ranges_of(view, quantity, bins)
    most = max(2, len(bins))
    found = [means_over(view, quantity, *ranges, name, DEFAULT_CONFIDENCE, most).means for name in names]
    of_parts = {part: [[getattr(mean, part) for mean in means] for means in found] for part in parts}
    return {part: np.array(rows, np.float64).tolist() for part, rows in of_parts.items()}


def _part_of_points(points: SeriesPoints, part: Statistic) -> list[float]:
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


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection to read: the values of the selected series at some times.

    Args: step_us, between two times; shape, how to write the samples of a series.
    """

    shape: Shape
    selector: Selector
    times_us: range
    step_us: int


class Extent(NamedTuple):
    """How many of a stream's series a reading selects, and the estimated microseconds to answer them."""

    series: int
    us: float


def listing_us(view: StreamView, selectors: int) -> float:
    """Return an estimate of the work to list a stream's series."""
    keys = view.strategy.axes.keys
    labels = _OWN_LABELS + (0 if keys is None else len(keys.labels))
    return _LABEL_US * labels * max(1, selectors)


def labels_of(view: StreamView, matching: Sequence[str]) -> tuple[int, bytes]:
    """Return how many series are selected (at most ``MOST_VALUES + 1``), and their labels as JSON items.

    Args: matching, selectors as texts. They are parsed here, because parsing a pattern may take long.
    Raises: PromQLError.
    """
    found = [one.labels for one in islice(_matching(view, matching), MOST_VALUES + 1)]
    return len(found), _items(found)


def label_names(view: StreamView, matching: Sequence[str]) -> set[str]:
    """Return the names of the selected series' labels. Args and raises: as ``labels_of``."""
    return {name for one in _matching(view, matching) for name in one.labels}


def label_values(view: StreamView, matching: Sequence[str], name: str) -> set[str]:
    """Return the values of one label of the selected series. Args and raises: as ``labels_of``."""
    return {one.labels[name] for one in _matching(view, matching) if name in one.labels}


def _matching(view: StreamView, matching: Sequence[str]) -> Iterator[BinSeries]:
    return selected(view, [parse_selector(text) for text in matching])


def extent(view: StreamView, reading: Selection) -> Extent:
    """Return the extent of a reading. It counts at most ``MOST_VALUES + 1`` series."""
    wanted, times = _wanted(view, reading), len(reading.times_us)
    return Extent(len(wanted), reading_us(view, wanted, times) + _VALUE_US * len(wanted) * times)


def samples(view: StreamView, reading: Selection) -> bytes:
    """Return the series that have samples, as JSON: the items of a list."""
    wanted = _wanted(view, reading)
    at_times = [(at, bin_at(view, at, reading.step_us)) for at in reading.times_us]
    bins = [(at, bin) for at, bin in at_times if bin is not None]
    together = _together(view, reading.selector.over_us) if wanted else None
    if together is not None and reading.step_us:
        # Not before the last bin is released: later it would be in this sum and in that of the next step.
        bins = [(at, bin) for at, bin in bins if view.binning.end_us(bin + 1) > at]
    found = values_of(view, wanted, sorted({bin for _, bin in bins}), together or 1)
    items: list[Any] = []
    for one, values in zip(wanted, found, strict=True):
        of_series = [(at, values[bin]) for at, bin in bins if bin in values]
        if of_series:
            # As in Prometheus, what a function returns has no name.
            named = together is None
            labels = {label: text for label, text in one.labels.items() if named or label != NAME_LABEL}
            items.append(shown(reading.shape, labels, of_series))
    return _items(items)


def _together(view: StreamView, over_us: int | None) -> int | None:
    """Return how many bins a length of time has; None without one. Raises: PromQLError for parts of bins."""
    if over_us is None:
        return None
    together, rest = divmod(over_us, view.binning.bin_us)
    if rest:
        raise PromQLError(
            f"sum_over_time: {over_us / 1e6:g} s are no whole number of the bins of {view.name}, "
            f"{view.binning.text}; ask for a multiple (in Grafana: Min step)"
        )
    return together


def _items(found: list[Any]) -> bytes:
    return _JSON.encode(found)[1:-1].encode()


def _wanted(view: StreamView, reading: Selection) -> list[BinSeries]:
    """Return the selected series. Raises: PromQLError for a sum over time of values that do not add up."""
    found = list(islice(selected(view, [reading.selector]), MOST_VALUES + 1))
    if found and _together(view, reading.selector.over_us) is not None:
        wrong = [one for one in found if one.metric.quantity != "bin" or one.metric.of == "mean"]
        if wrong:
            raise PromQLError(
                f"sum_over_time: {wrong[0].labels[NAME_LABEL]} does not add up over time; ask for "
                "private_counts_bin or private_counts_sum_bin, and their keys and ends of intervals"
            )
    return found


def shown(shape: Shape, labels: Mapping[str, str], samples: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """Return a series as an item of an answer's list. Args: samples, (microseconds since 1970, value)."""
    pairs = [[at / 1e6, str(value)] for at, value in samples]
    return {"metric": labels, "values": pairs} if shape == "matrix" else {"metric": labels, "value": pairs[0]}
