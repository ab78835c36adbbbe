"""The operator's metrics of the watcher of alert rules: notifications sent and waiting, and since when."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from stream_app.monitoring.registry import REDIS, Registered
from stream_app.ports.alerts import AlertTarget, NotDelivered, Refused


class AlertingMetrics(Registered):
    """All metrics of one watcher."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__((REDIS,))
        self._now_s = now_s
        self.deliveries = self.counter(
            "alert_deliveries",
            "Attempts to notify a target of an alert: delivered, failed or refused",
            ["target", "outcome"],
        )
        self.undelivered = self.gauge(
            "alert_undelivered_seconds", "How long a target has not accepted its next alert", ["target"]
        )
        age = self.gauge("store_age_seconds", "Time since the rules were last compared with released values")
        age.set_function(self._age_s)
        self._looked_s: float | None = None
        self._failing_s: dict[str, float] = {}  # by target: when its first attempt failed

    def looked(self) -> None:
        """Note that all rules were compared with the newest releases. Before, the watcher only waits."""
        self.waiting.now = None
        self._looked_s = self._now_s()

    def know(self, target: str) -> None:
        """Start a target's metrics at 0. Args: target, the place in the configuration that names it."""
        for outcome in ("delivered", "failed", "refused"):
            self.deliveries.labels(target, outcome)
        self.undelivered.labels(target).set_function(partial(self._undelivered_s, target))

    def delivered(self, target: str) -> None:
        """Count a delivery."""
        self.deliveries.labels(target, "delivered").inc()
        self._failing_s.pop(target, None)

    def failed(self, target: str) -> None:
        """Count a failed attempt."""
        self.deliveries.labels(target, "failed").inc()
        self._failing_s.setdefault(target, self._now_s())

    def refused(self, target: str) -> None:
        """Count a notification that the target refused, which is not repeated."""
        self.deliveries.labels(target, "refused").inc()
        self._failing_s.pop(target, None)

    def _undelivered_s(self, target: str) -> float:
        now_s = self._now_s()
        return now_s - self._failing_s.get(target, now_s)

    def _age_s(self) -> float:
        return math.nan if self._looked_s is None else self._now_s() - self._looked_s


class WatchedTarget(AlertTarget):
    """Passes alerts on to a target, and counts them under its place in the configuration."""

    def __init__(self, inner: AlertTarget, metrics: AlertingMetrics) -> None:
        self.name, self.shown = inner.name, inner.shown
        self.identity, self.former = inner.identity, inner.former
        self._inner, self._metrics = inner, metrics
        metrics.know(self.name)

    async def send(self, transition: Mapping[str, Any]) -> str:
        try:
            answer = await self._inner.send(transition)
        except (NotDelivered, OSError):
            self._metrics.failed(self.name)
            raise
        except Refused:
            self._metrics.refused(self.name)
            raise
        if answer:
            self._metrics.delivered(self.name)
        return answer

    async def remind(self, firing: Sequence[Mapping[str, Any]]) -> None:
        await self._inner.remind(firing)
