"""Metrics of released values: names, descriptions and labels, and the text that Prometheus scrapes.

The names are the same in /metrics and /api/v1. Nothing here is about requests or the machine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from prometheus_client.utils import floatToGoString

from dphist.arrays import FloatArray
from dphist.product.columns import key_counts
from dphist.tree.estimate import Estimate
from stream_app.api.answers.streams import users_of_epoch
from stream_app.api.schemas import DEFAULT_CONFIDENCE
from stream_app.core.alerts.states import State
from stream_app.core.answers.answered import whole_estimate
from stream_app.core.answers.asked_keys import labels_of_keys
from stream_app.core.answers.query import StreamView
from stream_app.core.answers.sums import epoch_filled, mean_over, sum_of, sums_of_keys
from stream_app.core.counting.keys import KeyList
from stream_app.core.meaning import meaning_of, meaning_of_amounts
from stream_app.ports.access import MOST_SERIES

Of = Literal["count", "sum", "mean"]
Quantity = Literal["running", "bin"]
Statistic = Literal["value", "lower", "upper", "stderr"]

PREFIX = "private_counts_"
SINCE = "since the first bin of this generation that is kept"  # what running values count

_NOUNS: dict[Of, str] = {"count": "events", "sum": "sum of the amounts", "mean": "mean of the amounts"}
_QUANTITIES: dict[Quantity, str] = {"running": SINCE, "bin": "in the bin that ended"}
_PARTS: dict[Statistic, str] = {
    "value": "Estimated",
    "lower": f"Lower end of the {DEFAULT_CONFIDENCE:.0%} interval of",
    "upper": f"Upper end of the {DEFAULT_CONFIDENCE:.0%} interval of",
    "stderr": "Standard error of",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """The meaning of a metric's values. Args: help, its description."""

    of: Of
    quantity: Quantity
    part: Statistic
    help: str


def name_of(of: Of, quantity: Quantity, part: Statistic, of_keys: bool = False) -> str:
    """Return a metric's name. A key has separate names, so that summing a metric counts no event twice.

    >>> name_of("count", "running", "value"), name_of("sum", "bin", "lower", of_keys=True)
    ('private_counts_running', 'private_counts_key_sum_bin_lower')
    """
    words = ("key" if of_keys else "", "" if of == "count" else of, quantity, "" if part == "value" else part)
    return PREFIX + "_".join(filter(None, words))


def _all(of_keys: bool) -> Iterator[tuple[str, Metric]]:
    for of, (quantity, when), (part, words) in product(_NOUNS, _QUANTITIES.items(), _PARTS.items()):
        if (of, part) != ("mean", "stderr"):
            what = f"{words} {_NOUNS[of]} {when}{', of one key' if of_keys else ''}"
            yield name_of(of, quantity, part, of_keys), Metric(of, quantity, part, what)


# Metrics by name. All are gauges: a noisy count may fall, so ``rate()`` does not apply.
METRICS = dict(_all(of_keys=False))
KEY_METRICS = dict(_all(of_keys=True))


def metrics_of(view: StreamView, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return the metrics that a stream has: those of sums and means only if it adds up an amount."""
    summed = view.declared.amounts is not None
    return {name: one for name, one in metrics.items() if summed or one.of == "count"}


def labels_of_stream(view: StreamView) -> dict[str, str]:
    """Return the labels that all series of a stream have.

    Generations have different bins, keys or epsilons, so each has its own series. The first one has no label
    ``generation``: a stream's series stay the same until its settings change.
    """
    labels = {"stream": view.name, "private": str(view.private).lower()}
    return labels if view.generation == 1 else labels | {"generation": str(view.generation)}


def words_of(view: StreamView, of: Of) -> str:
    """Return the meaning of a stream's counts or sums; empty if it counts every event, or has no sum."""
    if of != "count":
        return meaning_of_amounts(view.declared, of).counts if view.declared.amounts else ""
    meaning = meaning_of(view.declared)
    return "" if meaning.plain else meaning.counts


def with_words(text: str, counts: Mapping[str, str]) -> str:
    """Return a metric's description, with the meaning of each stream that does not count every event.

    >>> with_words("Estimated events", {"a": "", "b": "Counts each user once per epoch."})
    'Estimated events. Stream b: Counts each user once per epoch.'
    """
    said = [f"Stream {stream}: {words}" for stream, words in counts.items() if words]
    return " ".join([f"{text}.", *said]) if said else text


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OTHERS = {
    "running_since_seconds": "Start of the first bin that the running values count, seconds since 1970",
    "released_until_seconds": "End of the last released bin, seconds since 1970",
    "released_bins": "Bins released so far",
    "epsilon": "Privacy loss of one epoch, for the unit that /privacy names",
    "delta": "Delta beside epsilon, of approximate counts and of names of found keys",
    "epochs_left": "Epochs that the stream's total still allows after the newest one; +Inf without end",
    "epoch_users": "Estimated users first seen in the current epoch, each once; starts at 0 with every epoch",
    "epoch_users_lower": f"Lower end of the {DEFAULT_CONFIDENCE:.0%} interval of epoch_users",
    "epoch_users_upper": f"Upper end of the {DEFAULT_CONFIDENCE:.0%} interval of epoch_users",
    "epoch_users_stderr": "Standard error of epoch_users",
    "sum_epoch_filled": "Part of what the epoch's sum can hold, by released counts; the stream stops at 1",
    "series_left_out": "Series of streams and keys that this scrape leaves out; api.metrics.most_series is "
    "the limit",
    "alert_firing": "1 while an alert rule fires",  # PromQL cannot decide this: it lacks the noise's law
    "store_age_seconds": "Seconds since this process last read the store; until it can again, it answers "
    "from memory",
}

_IN_LINE = {ord("\\"): r"\\", ord("\n"): r"\n"}
_IN_QUOTES = _IN_LINE | {ord('"'): r"\""}


class Series(NamedTuple):
    """Series of the same metrics. Args: labels, of each place, as the text has them; values, by metric."""

    labels: Sequence[str]
    values: Mapping[str, Sequence[float]]

    @property
    def number(self) -> int:
        return len(self.labels) * len(self.values)

    def first(self, most: int) -> Series:
        """Return at most this many series, but all of a place or none."""
        places = most // max(len(self.values), 1)
        return Series(self.labels[:places], {name: of[:places] for name, of in self.values.items()})


@dataclass(frozen=True)
class Newest:
    """The newest values of a stream, all of the same release.

    Args: own, without keys; of_keys, none before a release; left_out, how many series of keys are not among
        them; words, the meaning of the stream's counts and sums, as ``words_of`` returns it.
    """

    stream: str
    own: Series
    of_keys: Series
    left_out: int
    words: Mapping[Of, str]

    @classmethod
    def of(cls, view: StreamView, with_keys: bool = False, most: int = MOST_SERIES) -> Newest:
        """Return a stream's newest values. Args: most, keys that can have series.

        Cost: 2 to 10 ms for a mean, O(columns) with its keys.
        """
        labels, keys = labels_of_stream(view), view.strategy.axes.keys if with_keys else None
        own = Series([_shown(labels)], {name: [value] for name, value in _values_of(view).items()})
        named, left_out = Series([], {}), 0
        if keys is not None and view.released_until_us is not None:
            named, left_out = _of_keys(view, keys, labels, most)
        return cls(view.name, own, named, left_out, {of: words_of(view, of) for of in get_args(Of)})


def _values_of(view: StreamView) -> dict[str, float]:
    """Return a stream's values without its keys, by metric."""
    found: dict[str, float | None] = {
        "released_bins": view.visible_seq,
        "epsilon": float(view.strategy.epsilon),
        "delta": None if view.strategy.delta is None else float(view.strategy.delta),
    }
    if view.left is not None:
        found["epochs_left"] = math.inf if view.left.epochs is None else view.left.epochs
    if view.declared.count == "users" and (users := users_of_epoch(view)) is not None:
        values = (users.value, *users.interval, users.stderr)
        found |= zip((name for name in _OTHERS if name.startswith("epoch_users")), values, strict=True)
    metrics = dict[str, float]()
    if view.released_until_us is not None:
        found["running_since_seconds"] = view.start_us / 1e6
        found["released_until_seconds"] = view.released_until_us / 1e6
        metrics |= _running("count", view.running())
        if view.declared.amounts:
            metrics |= _running("sum", sum_of(view, view.span))
            mean = mean_over(view, view.span, confidence=DEFAULT_CONFIDENCE)
            found["sum_epoch_filled"] = epoch_filled(view)
            found |= {f"mean_running_{part}": getattr(mean, part) for part in ("lower", "upper")}
            found["mean_running"] = mean.value
    return metrics | {f"{PREFIX}{name}": one for name, one in found.items() if one is not None}


def _running(of: Of, counts: Estimate) -> dict[str, float]:
    return {name_of(of, "running", part): one.item() for part, one in _parts_of(counts, 1).items()}


def _parts_of(counts: Estimate, width: int) -> dict[Statistic, FloatArray]:
    """Return the counts' value, interval and standard error, (width,) each."""
    interval = counts.interval(DEFAULT_CONFIDENCE)
    columns: dict[Statistic, Any] = {
        "value": counts.value,
        "lower": interval.lower,
        "upper": interval.upper,
        "stderr": counts.stderr,
    }
    return {part: np.broadcast_to(np.asarray(column, np.float64), width) for part, column in columns.items()}


def _of_keys(view: StreamView, keys: KeyList, own: Mapping[str, str], most: int) -> tuple[Series, int]:
    """Return the series of keys, and how many are left out. Args: own, the stream's labels."""
    labels = [_shown({**own, **of_key}) for of_key in islice(labels_of_keys(keys), most)]
    counts: dict[Of, Estimate] = {"count": whole_estimate(key_counts(view.cells()))}
    if view.declared.amounts:
        shown = view.of_one_list()
        counts["sum"] = sums_of_keys(shown, shown.span)
    columns = {
        name_of(of, "running", part, of_keys=True): column[:most].tolist()
        for of, estimate in counts.items()
        for part, column in _parts_of(estimate, len(keys.labels)).items()
    }
    return Series(labels, columns), len(columns) * (len(keys.labels) - len(labels))


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
    shown, left, left_out = list[Series](), most_series, sum(one.left_out for one in streams)
    for one in chain((of.own for of in streams), (of.of_keys for of in streams)):
        shown.append(one.first(left))
        lacking = one.number - shown[-1].number
        left, left_out = 0 if lacking else left - one.number, left_out + lacking
    lines = defaultdict[str, list[str]](list)
    for one in [*shown, *_beside(left_out, alerts, store_age_s)]:
        for name, values in one.values.items():
            pairs = zip(one.labels, map(floatToGoString, values), strict=True)
            lines[name] += [f"{name}{labels} {value}\n" for labels, value in pairs]
    # All are gauges: a noisy count may fall, so ``rate()`` does not apply.
    return "".join(
        f"# HELP {name} {_help(name, streams).translate(_IN_LINE)}\n# TYPE {name} gauge\n{''.join(of_name)}"
        for name, of_name in lines.items()
        if of_name
    ).encode()


def _beside(left_out: int, alerts: Mapping[str, State], store_age_s: float | None) -> Iterator[Series]:
    """Yield the series that belong to no stream's values: series left out, alerts, the age of the store."""
    yield Series([""], {f"{PREFIX}series_left_out": [left_out]})
    for name, state in sorted(alerts.items()):
        if state.last is not None:
            labels = _shown({"rule": name, "stream": state.last["stream"]})
            yield Series([labels], {f"{PREFIX}alert_firing": [state.phase == "firing"]})
    if store_age_s is not None:
        yield Series([""], {f"{PREFIX}store_age_seconds": [store_age_s]})


def _shown(labels: Mapping[str, str]) -> str:
    pairs = (f'{name}="{labels[name].translate(_IN_QUOTES)}"' for name in sorted(labels))
    return f"{{{','.join(pairs)}}}"


def _help(name: str, streams: Sequence[Newest]) -> str:
    """Return a gauge's description, with the meaning of the streams that have the gauge."""
    metric = METRICS.get(name) or KEY_METRICS.get(name)
    if metric is None:
        return _OTHERS[name.removeprefix(PREFIX)]
    with_it = [one for one in streams if name in METRICS or one.of_keys.labels]
    return with_words(metric.help, {one.stream: one.words[metric.of] for one in with_it})
