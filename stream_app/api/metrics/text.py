"""Released values for Prometheus; nothing about requests or the machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from dphist.product.columns import key_counts
from dphist.tree.estimate import Estimate
from stream_app.api.answers.streams import users_of_epoch
from stream_app.api.metrics.gauges import (
    SINCE,
    add,
    add_keys,
    labels_of_stream,
    new_gauge,
    parts_of,
    with_words,
)
from stream_app.api.metrics.sums import NewestSums, of_sums
from stream_app.api.schemas import DEFAULT_CONFIDENCE, EpochCount
from stream_app.core.alerts.states import State
from stream_app.core.answers.asked_keys import labels_of_keys
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.whole import whole_estimate
from stream_app.core.meaning import OfAmounts, meaning_of, meaning_of_amounts
from stream_app.ports.access import MOST_SERIES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_STREAM = {
    "running": f"Estimated events {SINCE}",
    "running_lower": f"Lower end of the {DEFAULT_CONFIDENCE:.0%} interval",
    "running_upper": f"Upper end of the {DEFAULT_CONFIDENCE:.0%} interval",
    "running_stderr": "Standard error of the running count",
    "running_since_seconds": "Start of the first bin that the running values count, seconds since 1970",
    "released_until_seconds": "End of the last released bin, seconds since 1970",
    "released_bins": "Bins released so far",
    "epsilon": "Privacy loss of one epoch, for the unit that /privacy names",
    "epochs_left": "Epochs that the stream's total still allows after the newest one; +Inf without end",
}

_EPOCH = {
    "epoch_users": "Estimated users first seen in the current epoch, each once; starts at 0 with every epoch",
    "epoch_users_lower": f"Lower end of the {DEFAULT_CONFIDENCE:.0%} interval of epoch_users",
    "epoch_users_upper": f"Upper end of the {DEFAULT_CONFIDENCE:.0%} interval of epoch_users",
    "epoch_users_stderr": "Standard error of epoch_users",
}
_COUNTS = ("running", "running_lower", "running_upper", "running_stderr")


@dataclass(frozen=True)
class Newest:
    """The newest values of a stream, all of the same release.

    Args: labels, of all its series.
        since_us, the start of the first bin of the running values.
        running, over all events; of_keys, per key, None if keys have no series. Both are None before a
            release.
        counts: what the stream counts, in words; empty if it counts every event.
        users: those first seen in the last epoch with a release; None for streams of events.
        sums: the newest sums and means; None for a stream without a sum.
        epochs_left: that its total still allows; None for a stream without a total.
    """

    stream: str
    labels: Mapping[str, str]
    epsilon: float
    delta: float | None
    seq: int
    since_us: int
    until_us: int | None
    running: Estimate | None
    key_labels: Sequence[Mapping[str, str]]
    of_keys: Estimate | None
    counts: str = ""
    users: EpochCount | None = None
    sums: NewestSums | None = None
    epochs_left: float | None = None

    @classmethod
    def of(cls, view: StreamView, with_keys: bool = False) -> Newest:
        """Return a stream's newest values. Cost: O(columns) with its keys."""
        keys, until_us = view.strategy.axes.keys if with_keys else None, view.released_until_us
        return cls(
            view.name,
            labels_of_stream(view),
            float(view.strategy.epsilon),
            None if view.strategy.delta is None else float(view.strategy.delta),
            view.visible_seq,
            view.start_us,
            until_us,
            None if until_us is None else view.running(),
            () if keys is None else labels_of_keys(keys),
            None if until_us is None or keys is None else whole_estimate(key_counts(view.cells())),
            words_of(view),
            users_of_epoch(view) if view.declared.count == "users" else None,
            NewestSums.of(view, with_keys) if view.declared.amounts else None,
            None if view.left is None else math.inf if view.left.epochs is None else view.left.epochs,
        )


def words_of(view: StreamView, of: Literal["count"] | OfAmounts = "count") -> str:
    """Return what a stream counts, or adds up; empty if it counts every event, or adds up nothing."""
    if of != "count":
        return meaning_of_amounts(view.declared, of).counts if view.declared.amounts else ""
    meaning = meaning_of(view.declared)
    return "" if meaning.plain else meaning.counts


def exposition(
    streams: Sequence[Newest],
    alerts: Mapping[str, State],
    store_age_s: float | None = None,
    most_series: int = MOST_SERIES,
) -> bytes:
    """Return the text that Prometheus scrapes.

    Args: alerts, the state of every rule by name; store_age_s, since the store was read, None before;
        most_series, of streams and their keys.
    """
    registry = CollectorRegistry(auto_describe=False)
    summed = {one.stream: (one.labels, one.key_labels, one.sums) for one in streams if one.sums}
    gauges = [*_of_streams(streams), *_of_epochs(streams), *_of_deltas(streams)]
    of_keys, counts_left_out = _of_keys(streams, most_series)
    sums, sums_left_out = of_sums(summed, most_series)
    gauges += [*of_keys, *sums]
    left_out = _cap(gauges, most_series, counts_left_out + sums_left_out)
    registry.register(_Gauges([*gauges, left_out, _of_alerts(alerts), _age(store_age_s)]))
    return generate_latest(registry)


class _Gauges(Collector):
    """Gauges of released values. A noisy count may fall, so ``rate()`` does not apply."""

    def __init__(self, gauges: Sequence[GaugeMetricFamily]) -> None:
        self._gauges = gauges

    def collect(self) -> Sequence[GaugeMetricFamily]:
        return self._gauges


def _of_streams(streams: Sequence[Newest]) -> Iterable[GaugeMetricFamily]:
    counts = {one.stream: one.counts for one in streams}
    gauges = {
        name: new_gauge(name, with_words(what, counts) if name in _COUNTS else what)
        for name, what in _STREAM.items()
    }
    for one in streams:
        values = {"released_bins": one.seq, "epsilon": one.epsilon}
        if one.epochs_left is not None:
            values["epochs_left"] = one.epochs_left
        if one.until_us is not None and one.running is not None:
            values["running_since_seconds"] = one.since_us / 1e6
            values["released_until_seconds"] = one.until_us / 1e6
            values |= {f"running{part}": value.item() for part, value in parts_of(one.running, 1).items()}
        for name, value in values.items():
            add(gauges[name], one.labels, value)
    return gauges.values()


def _cap(gauges: Sequence[GaugeMetricFamily], most: int, left_out_before: int) -> GaugeMetricFamily:
    """Leave out series beyond the limit, in place; return the gauge of how many were left out.

    Streams come first, then keys, each in order. All series of a stream, and of a key, stay together.
    Args: left_out_before, how many were left out before.
    """
    series: dict[tuple[tuple[str, str], ...], int] = {}  # how many there are, by their labels
    named = [[(tuple(sample.labels.items()), sample) for sample in gauge.samples] for gauge in gauges]
    for labels, _ in chain.from_iterable(named):
        series[labels] = series.get(labels, 0) + 1
    reached = accumulate(series.values())
    kept = {labels for labels, number in zip(series, reached, strict=True) if number <= most}
    for gauge, samples in zip(gauges, named, strict=True):
        gauge.samples = [sample for labels, sample in samples if labels in kept]
    what = "Series of streams and keys that this scrape leaves out; api.metrics.most_series is the limit"
    left_out = new_gauge("series_left_out", what)
    beyond = sum(number for labels, number in series.items() if labels not in kept)
    left_out.add_metric([], left_out_before + beyond)
    return left_out


def _age(seconds: float | None) -> GaugeMetricFamily:
    """Return how old the values of this process may be; without a sample before the store was read."""
    what = "Seconds since this process last read the store; until it can again, it answers from memory"
    gauge = new_gauge("store_age_seconds", what)
    if seconds is not None:
        gauge.add_metric([], seconds)
    return gauge


def _of_deltas(streams: Sequence[Newest]) -> Iterable[GaugeMetricFamily]:
    """Return the gauge of deltas, for streams with an approximate promise; else none."""
    gauge = new_gauge("delta", "Delta beside epsilon, of approximate streams")
    for one in streams:
        if one.delta is not None:
            add(gauge, one.labels, one.delta)
    return [gauge] if gauge.samples else ()


def _of_epochs(streams: Sequence[Newest]) -> Iterable[GaugeMetricFamily]:
    """Return gauges of the users of the last epoch, for streams that count users; else none."""
    gauges = {name: new_gauge(name, what) for name, what in _EPOCH.items()}
    counting = [one for one in streams if one.users is not None]
    for one in counting:
        users = one.users
        assert users is not None
        for gauge, value in zip(gauges.values(), (users.value, *users.interval, users.stderr), strict=True):
            add(gauge, one.labels, value)
    return gauges.values() if counting else ()


def _of_keys(streams: Sequence[Newest], most: int) -> tuple[list[GaugeMetricFamily], int]:
    """Return gauges of keys, under separate names, so that a sum over one name counts events once.

    Also return how many samples are left out. Args: most, keys of a stream that can have samples.
    """
    left_out = 0
    what = f"of a key: estimated events {SINCE}"
    counts = {one.stream: one.counts for one in streams if one.key_labels}
    gauges = {
        part: new_gauge(f"key_running{part}", with_words(f"{part[1:]} {what}".strip(), counts))
        for part in ("", "_lower", "_upper", "_stderr")
    }
    for one in streams:
        if one.of_keys is not None:
            left_out += add_keys(gauges, one.labels, one.key_labels, one.of_keys, most)
    return list(gauges.values()), left_out


def _of_alerts(alerts: Mapping[str, State]) -> GaugeMetricFamily:
    """Return a gauge per rule: 1 while it fires. PromQL cannot decide this: it lacks the noise's law."""
    firing = new_gauge("alert_firing", "1 while an alert rule fires")
    for name, state in sorted(alerts.items()):
        if state.last is not None:
            add(firing, {"rule": name, "stream": state.last["stream"]}, float(state.phase == "firing"))
    return firing
