"""The operator's metrics of the API: requests by kind, and the age of the answers. No reader sees them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from stream_app.monitoring.waiting import REDIS, Waiting

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ReadingMetrics:
    """All metrics of one API process, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.waiting = Waiting(self.registry, (REDIS,))
        new = partial(Counter, namespace="stream_app", registry=self.registry)
        about = "Answers by the path's pattern; other: unknown or refused unread; 499: the reader left"
        self._answers = new("api_answers", about, ["route", "status"])
        self._seconds = Histogram(
            "api_seconds",
            "From a request's head until the head of its answer",
            ["route"],
            namespace="stream_app",
            registry=self.registry,
            buckets=_SECONDS,
        )
        gauge = partial(Gauge, namespace="stream_app", registry=self.registry)
        self._followers = gauge("followers", "Readers that follow a stream of events")
        self._age = gauge("store_age_seconds", "Time since released values were last read from the store")
        self._age.set(math.nan)

    def watch(self, followers: Callable[[], int], store_age_s: Callable[[], float | None]) -> None:
        """Show these numbers from now on. Args: store_age_s, None until the store was read."""

        def age_s() -> float:
            found = store_age_s()
            return math.nan if found is None else found

        self._followers.set_function(followers)
        self._age.set_function(age_s)
        self.waiting.until(lambda: store_age_s() is not None)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one answer. Args: route, a pattern of the application, never a reader's text."""
        self._answers.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)
