"""The metrics of one process, in a registry of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from stream_app.monitoring.waiting import Waiting

# A sample beside every counter, which no rule reads; a push would take it for the counter's own.
disable_created_metrics()  # type: ignore[no-untyped-call]
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Registered:
    """A registry, what makes metrics in it, and for what the process waits. Args: waits_for, at a start."""

    def __init__(self, waits_for: Sequence[str] = ()) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.waiting = Waiting(self.registry, waits_for)
        self.gauge = partial(Gauge, namespace="stream_app", registry=self.registry)
        self.counter = partial(Counter, namespace="stream_app", registry=self.registry)
        self.histogram = partial(Histogram, namespace="stream_app", registry=self.registry, buckets=_SECONDS)
