"""The operator's metrics of the process that receives events. SECRET: they follow the events one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from stream_app.monitoring.waiting import Waiting

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# A log's growth is visible only if its counters start at 0.
_USUAL = (200, 400, 401, 403, 404, 408, 411, 413, 415, 421, 422, 429, 503, 507)


class SpoolFacts(Protocol):
    """The contents of a spool."""

    def bytes_kept(self) -> int:
        """Return the space that its files take."""
        ...

    def kept_since_us(self) -> int | None:
        """Return when the oldest request that is kept arrived; None if it is empty."""
        ...


class ReceivingMetrics:
    """All metrics of one process, in a separate registry.

    Args: spools, by name; most_bytes, the largest size of each.
    """

    def __init__(
        self, spools: Mapping[str, SpoolFacts], most_bytes: int, wall_s: Callable[[], float] = time.time
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.waiting = Waiting(self.registry)  # it waits for nobody
        gauge = partial(Gauge, namespace="stream_app", registry=self.registry)
        counter = partial(Counter, namespace="stream_app", registry=self.registry)
        self._answers = counter(
            "ingest_answers",
            "Answers to requests, by status; without a spool: no known name, or refused unread",
            ["spool", "status"],
        )
        self._bytes = counter("ingest_bytes", "Bytes of events stored", ["spool"])
        self._records = counter("ingest_records", "Events stored", ["spool"])
        self._duplicates = counter(
            "ingest_duplicates", "Requests whose key was known: their events were stored before", ["spool"]
        )
        self._seconds = Histogram(
            "ingest_seconds",
            "From a request's head to its answer: the body arrives, is stored and synced",
            ["spool"],
            namespace="stream_app",
            registry=self.registry,
            buckets=_SECONDS,
        )
        size = gauge("spool_bytes", "Space that a spool takes on the disk", ["spool"])
        limit = gauge("spool_limit_bytes", "Space that a spool may take (ingest.max_size)", ["spool"])
        oldest = gauge("spool_oldest_seconds", "Age of the oldest request that a spool keeps", ["spool"])
        for name, facts in spools.items():
            for metric in (self._bytes, self._records, self._duplicates, self._seconds):
                metric.labels(name)
            size.labels(name).set_function(facts.bytes_kept)
            limit.labels(name).set(most_bytes)
            oldest.labels(name).set_function(partial(_age_s, facts, wall_s))
        for name in ("", *spools):
            for status in _USUAL:
                self._answers.labels(name, status)

    def answered(self, spool: str, status: int, seconds: float) -> None:
        """Count one answer. Args: spool, empty for a name that no stream has."""
        self._answers.labels(spool, status).inc()
        if spool:
            self._seconds.labels(spool).observe(seconds)

    def refused(self, status: HTTPStatus) -> None:
        """Count a connection or a request that was refused before it was read."""
        self._answers.labels("", status.value).inc()

    def stored(self, spool: str, length: int, records: int, is_new: bool) -> None:
        """Count one request that is on the disk, now or since an earlier request."""
        if is_new:
            self._bytes.labels(spool).inc(length)
            self._records.labels(spool).inc(records)
        else:
            self._duplicates.labels(spool).inc()


def _age_s(facts: SpoolFacts, wall_s: Callable[[], float]) -> float:
    since_us = facts.kept_since_us()
    return 0.0 if since_us is None else max(0.0, wall_s() - since_us / 1e6)
