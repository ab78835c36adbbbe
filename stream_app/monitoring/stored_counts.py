"""Metrics from the operator's counters in the store: exact, of all workers together. SECRET."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from stream_app.core.counting.outcomes import LATE_BINS, LATE_CLASSES, LATE_WITHIN_S, SET_ASIDE
from stream_app.core.incoming import OF_ENGINE, Reason
from stream_app.ports import Store

READ_EVERY_S = 2.0

Counts = Mapping[str, int]


class StoredCounts(Collector):
    """Shows the counters as they were last read from the store.

    The metrics of one stream are equal on all workers, up to the moments of reading, so do not add them up.
    """

    def __init__(self) -> None:
        self._bin_s: dict[str, float] = {}
        self._reasons: dict[str, list[Reason]] = {}
        self._read: dict[str, Counts] = {}

    def know(self, stream: str, bin_s: float, *, of_engine: bool = False) -> None:
        """Show a stream from now on. Args: bin_s, the length of its bins in seconds; of_engine, of rows."""
        self._bin_s[stream] = bin_s
        self._reasons[stream] = [one for one in Reason if of_engine or one not in OF_ENGINE]

    def show(self, stream: str, counts: Counts) -> None:
        """Show these counts from now on."""
        self._read[stream] = counts

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of all streams whose counters were read."""
        stream = ["stream"]
        refused = CounterMetricFamily(
            "stream_app_refused_records",
            "Records not counted, since the stream began (late ones that a later bin counts are none)",
            labels=["stream", "reason"],
        )
        aside = CounterMetricFamily(
            "stream_app_set_aside_records",
            "Records dated too far ahead, which the next cut counts or refuses, since the stream began",
            labels=stream,
        )
        late = HistogramMetricFamily(
            "stream_app_late_seconds",
            "Late records, by how much longer time.grace would have to be, since the stream began",
            labels=stream,
        )
        for name, counts in list(self._read.items()):  # changed by another thread
            for reason in self._reasons[name]:
                refused.add_metric([name, reason], counts.get(reason, 0))
            aside.add_metric([name], counts.get(SET_ASIDE, 0))
            late.add_metric([name], _buckets(counts), counts.get(LATE_BINS, 0) * self._bin_s[name])
        return refused, aside, late


def _buckets(counts: Counts) -> Sequence[tuple[str, float]]:
    """Return the upper bound of each bucket, and how many records are late by at most that."""
    records, buckets = 0, []
    for bound, name in zip((*map(float, LATE_WITHIN_S), "+Inf"), LATE_CLASSES, strict=True):
        records += counts.get(name, 0)
        buckets.append((str(bound), float(records)))
    return buckets


async def follow(store: Store, streams: Sequence[str], counts: StoredCounts) -> None:
    """Read the counters of the streams until cancelled. While the store is down, the last ones are shown.

    The clock decides when they are read, not the records. Args: store, which no loop uses.
    """
    while True:
        for stream in streams:
            with suppress(OSError):
                counts.show(stream, await store.operator_counts(stream))
        await asyncio.sleep(READ_EVERY_S)
