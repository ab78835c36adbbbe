"""The operator's metrics of the process that receives events. SECRET: they follow the events one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Protocol

from stream_app.monitoring.registry import Registered

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


class ReceivingMetrics(Registered):
    """All metrics of one process. It waits for nobody.

    Args: spools, by name; most_bytes, the largest size of each.
    """

    def __init__(
        self, spools: Mapping[str, SpoolFacts], most_bytes: int, wall_s: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        gauge, counter = self.gauge, self.counter
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
        self._seconds = self.histogram(
            "ingest_seconds",
            "From a request's head to its answer: the body arrives, is stored and synced",
            ["spool"],
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
