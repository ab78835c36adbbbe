"""The metrics of one process, in a registry of their own, and the cause for which the process waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

# A sample beside every counter, which no rule reads; a push would take it for the counter's own.
disable_created_metrics()  # type: ignore[no-untyped-call]

REDIS, KAFKA, CLOCK, OWN_START = "redis", "kafka", "clock", "own start"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Waiting:
    """The cause for which a process waits ``now``; None if it works. A gauge shows the cause.

    Args: names, of everything that the process may wait for; it begins with the first.
    """

    def __init__(self, registry: CollectorRegistry, names: Sequence[str] = ()) -> None:
        self._now: str | None = names[0] if names else None
        self.detail: object = ""  # its text says how far a start is, where that is known
        self.lacking = ""  # what a ready process does not do; no names, for example "1 of 3 streams stopped"
        self._is_over: Callable[[], bool] = lambda: False
        about = "1 while the process waits for this and cannot do its work"
        gauge = Gauge("waiting", about, ["service"], namespace="stream_app", registry=registry)
        for name in names:
            gauge.labels(name).set_function(partial(self._waits_for, name))

    @property
    def now(self) -> str | None:
        """The name of the cause for which the process waits."""
        return None if self._is_over() else self._now

    @now.setter
    def now(self, name: str | None) -> None:
        self._now = name

    def until(self, is_over: Callable[[], bool]) -> None:
        """Wait no more once ``is_over()`` is true."""
        self._is_over = is_over

    def _waits_for(self, name: str) -> float:
        return float(self.now == name)


class Registered:
    """A registry, what makes metrics in it, and for what the process waits. Args: waits_for, at a start."""

    def __init__(self, waits_for: Sequence[str] = ()) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.waiting = Waiting(self.registry, waits_for)
        self.gauge = partial(Gauge, namespace="stream_app", registry=self.registry)
        self.counter = partial(Counter, namespace="stream_app", registry=self.registry)
        self.histogram = partial(Histogram, namespace="stream_app", registry=self.registry, buckets=_SECONDS)
