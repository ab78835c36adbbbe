"""Released history as Prometheus samples: one sample per bin, at the bin's end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stream_app.api.metrics.names import (
    KEY_METRICS,
    METRICS,
    Metric,
    Of,
    Quantity,
    Statistic,
    labels_of_stream,
    metrics_of,
)
from stream_app.api.prometheus.promql import NAME_LABEL, Selector
from stream_app.api.prometheus.quantities import read, reading
from stream_app.core.answers.asked_keys import labels_of_keys
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.tables import Span

SHORTEST_LOOKBACK_US = 300_000_000  # Prometheus' own


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
    labels = [] if keys is None else labels_of_keys(keys)
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
