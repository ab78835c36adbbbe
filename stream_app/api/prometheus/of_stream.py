"""One stream's part of an answer to Prometheus: pure functions of its view."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

from stream_app.api.prometheus.bin_samples import BinSeries, bin_at, reading_us, selected, values_of
from stream_app.api.prometheus.promql import NAME_LABEL, PromQLError, Selector, parse_selector
from stream_app.api.schemas import MAX_POINTS
from stream_app.core.answers.query import StreamView

Shape = Literal["vector", "matrix"]

MOST_VALUES = 4 * MAX_POINTS  # in one answer, over all series
_LABEL_US = 8.0  # comparing a label with a selector, and naming its series
_VALUE_US = 2.0  # writing a value
_OWN_LABELS = 16  # of a stream, beside its keys
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


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
