"""For what a process waits before it can do its work. It reveals nothing about what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Gauge

REDIS, KAFKA, CLOCK, START = "redis", "kafka", "clock", "own start"


class Waiting:
    """What a process waits for ``now``; None if it does its work. A gauge shows it.

    Args: names, of everything that the process may wait for; it begins with the first.
    """

    def __init__(self, registry: CollectorRegistry, names: Sequence[str] = ()) -> None:
        self.now: str | None = names[0] if names else None
        about = "1 while the process waits for this and cannot do its work"
        gauge = Gauge("waiting", about, ["service"], namespace="stream_app", registry=registry)
        for name in names:
            gauge.labels(name).set_function(partial(self._waits_for, name))

    def _waits_for(self, name: str) -> float:
        return float(self.now == name)
