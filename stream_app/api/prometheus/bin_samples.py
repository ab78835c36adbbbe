"""Released history as Prometheus samples: one sample per bin, at the bin's end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dphist.arrays import FloatArray
from dphist.laws.interval import half_widths
from dphist.tree.estimate import Estimate
from stream_app.api.admission.work import POINT_US, slices_us
from stream_app.api.answers.ranges import reach
from stream_app.api.prometheus.promql import NAME_LABEL, Selector
from stream_app.api.schemas import DEFAULT_CONFIDENCE
from stream_app.core.answers.answered import SeriesPoints as Points
from stream_app.core.answers.asked_keys import labels_of_keys
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.tables import Span

Quantity = Literal["running", "bin"]
Part = Literal["value", "lower", "upper", "stderr"]

FEW_KEYS = 2
SHORTEST_LOOKBACK_US = 300_000_000  # Prometheus' own

_QUANTITIES: dict[Quantity, str] = {
    "running": "events since the stream's first bin",
    "bin": "events in the bin that ended",
}
_PARTS: dict[Part, str] = {
    "value": "Estimated",
    "lower": f"Lower end of the {DEFAULT_CONFIDENCE:.0%} interval of",
    "upper": f"Upper end of the {DEFAULT_CONFIDENCE:.0%} interval of",
    "stderr": "Standard error of",
}
# Metrics by name. All are gauges: a noisy count may fall, so ``rate()`` does not apply.
METRICS: dict[str, tuple[Quantity, Part, str]] = {
    f"private_counts_{quantity}" + ("" if part == "value" else f"_{part}"): (
        quantity,
        part,
        f"{words} {what}",
    )
    for quantity, what in _QUANTITIES.items()
    for part, words in _PARTS.items()
}
# The same per key under separate names, so that summing a metric does not count events twice.
KEY_METRICS = {
    name.replace("private_counts_", "private_counts_key_"): (quantity, part, f"{text}, of one key")
    for name, (quantity, part, text) in METRICS.items()
}


@dataclass(frozen=True)
class BinSeries:
    """One series of a stream: the value, standard error or interval end of a quantity, over all keys or one.

    Args: place, the key's index in the list; None for all events.
    """

    place: int | None
    quantity: Quantity
    part: Part
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


def values_of(view: StreamView, wanted: Sequence[BinSeries], bins: Sequence[int]) -> list[dict[int, float]]:
    """Return each series' values at the ends of bins, without bins that were never measured.

    Cost: ``reading_us``; a few keys are read one by one, many keys of a bin at once.
    """
    spans = [epoch.span for epoch in view.epochs]
    known = [bin for bin in bins if any(span.start <= bin < span.stop for span in spans)]
    found: dict[tuple[Quantity, Part, int | None], list[float]] = {}
    for group in dict.fromkeys((one.quantity, one.place is None) for one in wanted):
        of_group = [one for one in wanted if (one.quantity, one.place is None) == group]
        places = list(dict.fromkeys(one.place for one in of_group))
        parts = list(dict.fromkeys(one.part for one in of_group))
        for part, columns in _columns(view, group[0], places, parts, known).items():
            found |= {(group[0], part, place): row for place, row in zip(places, columns, strict=True)}
    return [dict(zip(known, found[one.quantity, one.part, one.place], strict=True)) for one in wanted]


def reading_us(view: StreamView, wanted: Sequence[BinSeries], bins: int) -> float:
    """Return an estimate, in microseconds, of the time to read these series at ``bins`` instants."""
    groups: dict[Quantity, set[int | None]] = {}
    for one in wanted:
        groups.setdefault(one.quantity, set()).add(one.place)
    us = 0.0
    for places in groups.values():
        keys = len(places - {None})
        apart = bins * POINT_US * ((None in places) + (keys if keys <= FEW_KEYS else 0))
        us += apart + (slices_us(view, bins) if keys > FEW_KEYS else 0.0)
    return us


def _columns(
    view: StreamView,
    quantity: Quantity,
    places: Sequence[int | None],
    parts: Sequence[Part],
    bins: Sequence[int],
) -> dict[Part, list[list[float]]]:
    """Return, for each part, a quantity at the ends of bins: one list per key index (None: all events)."""
    if len(places) > FEW_KEYS:
        estimates = _of_keys(view, quantity, [place for place in places if place is not None], bins)
        return {part: part_of(estimates, part, len(places)).T.tolist() for part in parts}
    keys = view.strategy.axes.keys
    views = [view if place is None or keys is None else view.of_key(keys.labels[place]) for place in places]
    read = [one.at_ends(quantity, bins) for one in views]
    return {part: [_part_of_points(points, part) for points in read] for part in parts}


def _part_of_points(points: Points, part: Part) -> list[float]:
    found: FloatArray = points.values
    if part == "stderr":
        found = points.laws.deviations()
    elif part != "value":
        reach = half_widths(points.laws, DEFAULT_CONFIDENCE)[0] + points.roundings
        found = points.values - reach if part == "lower" else points.values + reach
    return [float(one) for one in found]


def _of_keys(
    view: StreamView, quantity: Quantity, places: Sequence[int], bins: Sequence[int]
) -> list[Estimate]:
    """Return a quantity of many keys at the end of each bin; all keys of a bin are read at once."""
    first, estimates = view.span.start, []
    for bin in bins:
        all_keys = view.counts_of_keys(Span(first if quantity == "running" else bin, bin + 1))
        # Keep only the requested keys, because many bins of all keys would not fit in memory.
        estimates.append(replace(all_keys, value=np.asarray(all_keys.value)[list(places)]))
    return estimates


def part_of(estimates: Sequence[Estimate], part: Part, width: int) -> FloatArray:
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


def selected(view: StreamView, selectors: Sequence[Selector]) -> Iterator[BinSeries]:
    """Yield a view's series that match any of the selectors; all series without selectors.

    Cost: each label is compared once with each selector, for any number of metrics.
    """
    common = {"stream": view.strategy.stream, "private": str(view.private).lower()}
    keys = view.strategy.axes.keys
    labels = [] if keys is None else labels_of_keys(keys)
    names = list(labels[0]) if labels else ["key"]
    of_keys = [(one.without(*names), _places(one, names, labels)) for one in selectors]
    for name, (quantity, part, _) in METRICS.items():
        own = {NAME_LABEL: name, **common}
        if not selectors or any(one.matches(own) for one in selectors):
            yield BinSeries(None, quantity, part, own)
    for name, (quantity, part, _) in KEY_METRICS.items():
        of_metric = {NAME_LABEL: name, **common}
        wanted = [places for of_others, places in of_keys if of_others.matches(of_metric)]
        for place in sorted(set().union(*wanted)) if selectors else range(len(labels)):
            yield BinSeries(place, quantity, part, of_metric | labels[place])


def _places(selector: Selector, names: Sequence[str], labels: Sequence[Mapping[str, str]]) -> set[int]:
    """Return the indices of the keys that match a selector's conditions on the key and its fields."""
    of_key = [one for one in selector.matchers if one.label in names]
    return {place for place, own in enumerate(labels) if all(one.matches(own) for one in of_key)}
