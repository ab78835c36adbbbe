"""What all gauges of released values share: their names, descriptions, and the parts of an estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from prometheus_client.core import GaugeMetricFamily

from dphist.arrays import FloatArray
from dphist.tree.estimate import Estimate
from stream_app.api.schemas import DEFAULT_CONFIDENCE
from stream_app.core.answers.query import StreamView

SINCE = "since the first bin of this generation that is kept"  # what running values count


def with_words(text: str, counts: Mapping[str, str]) -> str:
    """Return a metric's description with what each stream counts that does not count every event.

    >>> with_words("Estimated events", {"a": "", "b": "Counts each user once per epoch."})
    'Estimated events. Stream b: Counts each user once per epoch.'
    """
    return " ".join([f"{text}.", *said]) if (said := _said(counts)) else text


def _said(counts: Mapping[str, str]) -> list[str]:
    return [f"Stream {stream}: {words}" for stream, words in counts.items() if words]


def parts_of(counts: Estimate, width: int) -> dict[str, FloatArray]:
    """Return the counts' value, interval and standard error, each under the ending of its metric's name."""
    interval = counts.interval(DEFAULT_CONFIDENCE)
    columns = {"": counts.value, "_lower": interval.lower, "_upper": interval.upper, "_stderr": counts.stderr}
    return {part: np.broadcast_to(np.asarray(column, np.float64), width) for part, column in columns.items()}


def labels_of_stream(view: StreamView) -> dict[str, str]:
    """Return the labels that all series of a stream have.

    Generations have different bins, keys or epsilons, so each has its own series. The first one has no label
    ``generation``: a stream's series stay what they were until its settings change.
    """
    labels = {"stream": view.name, "private": str(view.private).lower()}
    return labels if view.generation == 1 else labels | {"generation": str(view.generation)}


def new_gauge(name: str, what: str) -> GaugeMetricFamily:
    """Return an empty gauge. Args: name, without the prefix of all; what it is."""
    return GaugeMetricFamily(f"private_counts_{name}", what)


def add(gauge: GaugeMetricFamily, labels: Mapping[str, str], value: float) -> None:
    """Add a sample with these labels to a gauge."""
    gauge.add_sample(gauge.name, dict(labels), value)


def add_keys(
    gauges: Mapping[str, GaugeMetricFamily],
    own: Mapping[str, str],
    keys: Sequence[Mapping[str, str]],
    counts: Estimate,
    most: int,
) -> int:
    """Add a sample of each key to the gauge of each part; return how many samples are left out.

    Args: own, the labels of the stream; keys, the labels of each key; most, keys beyond it are left out.
    """
    for part, column in parts_of(counts, len(keys)).items():
        for labels, value in zip(keys[:most], column[:most].tolist(), strict=True):
            add(gauges[part], {**own, **labels}, value)
    return len(gauges) * max(len(keys) - most, 0)
