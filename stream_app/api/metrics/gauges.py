"""What all gauges of released values share: their names, descriptions, and the parts of an estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from prometheus_client.core import GaugeMetricFamily

from dphist.arrays import FloatArray
from dphist.tree.estimate import Estimate
from stream_app.api.schemas import DEFAULT_CONFIDENCE


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


def new_gauge(name: str, what: str, labels: Sequence[str]) -> GaugeMetricFamily:
    """Return an empty gauge. Args: name, without the prefix of all; what it is; names of its labels."""
    return GaugeMetricFamily(f"private_counts_{name}", what, labels=labels)


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
            gauges[part].add_sample(gauges[part].name, {**own, **labels}, value)
    return len(gauges) * max(len(keys) - most, 0)
