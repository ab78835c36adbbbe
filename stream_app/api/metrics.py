"""Released values for Prometheus; nothing about requests or the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from dphist.product.columns import key_counts
from dphist.tree.estimate import Estimate
from stream_app.api.answers import DEFAULT_CONFIDENCE
from stream_app.core.alerts.states import State
from stream_app.core.query import StreamView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Newest:
    """The newest values of a stream, all of the same release.

    Args: running and of_keys, None before the first release; of_keys is also None without keys.
    """

    stream: str
    private: str
    epsilon: float
    seq: int
    until_us: int | None
    running: Estimate | None
    keys: Sequence[str]
    of_keys: Estimate | None

    @classmethod
    def of(cls, view: StreamView) -> Newest:
        """Return a stream's newest values. Cost: O(columns) if it has keys."""
        keys, until_us = view.strategy.axes.keys, view.released_until_us
        return cls(
            view.strategy.stream,
            str(view.private).lower(),
            float(view.strategy.epsilon),
            view.visible_seq,
            until_us,
            None if until_us is None else view.running(),
            () if keys is None else keys.labels,
            None if until_us is None or keys is None else key_counts(view.cells()),
        )


def exposition(streams: Sequence[Newest], alerts: Mapping[str, State]) -> bytes:
    """Return the text that Prometheus scrapes. Args: alerts, the state of every rule by name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Released(streams))
    registry.register(_Alerts(alerts))
    return generate_latest(registry)


class _Alerts(Collector):
    """1 for a firing rule, decided by the exact law of the noise, which PromQL cannot compute."""

    def __init__(self, alerts: Mapping[str, State]) -> None:
        self._alerts = alerts

    def collect(self) -> Iterator[GaugeMetricFamily]:
        firing = GaugeMetricFamily(
            "private_counts_alert_firing", "1 while an alert rule fires", labels=["rule", "stream"]
        )
        for name, state in sorted(self._alerts.items()):
            if state.last is not None:
                firing.add_metric([name, state.last["stream"]], float(state.phase == "firing"))
        yield firing


class _Released(Collector):
    """Gauges of releases: a noisy count may fall, so it is no counter and ``rate()`` does not apply."""

    def __init__(self, streams: Sequence[Newest]) -> None:
        self._streams = streams

    def collect(self) -> Iterator[GaugeMetricFamily]:
        def gauge(name: str, what: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"private_counts_{name}", what, labels=["stream", "private"])

        running = gauge("running", "Estimated events since the stream's first bin")
        lower = gauge("running_lower", f"Lower end of the {DEFAULT_CONFIDENCE:.0%} interval")
        upper = gauge("running_upper", f"Upper end of the {DEFAULT_CONFIDENCE:.0%} interval")
        stderr = gauge("running_stderr", "Standard error of the running count")
        until = gauge("released_until_seconds", "End of the last released bin, seconds since 1970")
        bins = gauge("released_bins", "Bins released so far")
        epsilon = gauge("epsilon", "Privacy loss of one epoch, for the unit that /privacy names")
        for one in self._streams:
            labels = [one.stream, one.private]
            epsilon.add_metric(labels, one.epsilon)
            bins.add_metric(labels, one.seq)
            if one.until_us is None or one.running is None:
                continue
            estimate = one.running
            interval = estimate.interval(DEFAULT_CONFIDENCE)
            until.add_metric(labels, one.until_us / 1e6)
            running.add_metric(labels, float(estimate.value))
            lower.add_metric(labels, float(interval.lower))
            upper.add_metric(labels, float(interval.upper))
            stderr.add_metric(labels, estimate.stderr)
        yield from (running, lower, upper, stderr, until, bins, epsilon)
        yield from self._keys()

    def _keys(self) -> Iterator[GaugeMetricFamily]:
        """Yield the keys in separate metrics, because with the totals their events would be summed twice."""
        labels = ["stream", "key", "private"]
        what = "of a key: estimated events since the stream's first bin"
        ends = {part: f"private_counts_key_running{part}" for part in ("", "_lower", "_upper", "_stderr")}
        gauges = {
            part: GaugeMetricFamily(name, f"{part[1:]} {what}".strip(), labels=labels)
            for part, name in ends.items()
        }
        for one in self._streams:
            counts = one.of_keys
            if counts is None:
                continue
            interval = counts.interval(DEFAULT_CONFIDENCE)
            columns = {"": counts.value, "_lower": interval.lower, "_upper": interval.upper}
            for place, key in enumerate(one.keys):
                own = [one.stream, key, one.private]
                for part, column in columns.items():
                    gauges[part].add_metric(own, float(np.asarray(column)[place]))
                gauges["_stderr"].add_metric(own, counts.stderr)
        yield from gauges.values()
