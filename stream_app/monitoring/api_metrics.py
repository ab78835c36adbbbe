"""The operator's metrics of the API: requests by kind, and the age of the answers. No reader sees them."""

from __future__ import annotations

import math
from collections.abc import Callable

from stream_app.monitoring.registry import REDIS, Registered


class ReadingMetrics(Registered):
    """All metrics of one API process."""

    def __init__(self) -> None:
        super().__init__((REDIS,))
        about = "Answers by the path's pattern; other: unknown or refused unread; 499: the reader left"
        self._answers = self.counter("api_answers", about, ["route", "status"])
        about = "From a request's head until the head of its answer"
        self._seconds = self.histogram("api_seconds", about, ["route"])
        self._followers = self.gauge("followers", "Readers that follow a stream of events")
        self._age = self.gauge(
            "store_age_seconds", "Time since released values were last read from the store"
        )
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
