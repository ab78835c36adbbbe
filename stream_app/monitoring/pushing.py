"""The operator's metrics, pushed to a collector by OTLP over HTTP, where nothing can scrape them. SECRET.

It needs the extra ``otlp``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family

from stream_app.outage import Outage

log = logging.getLogger(__name__)

EVERY_S = 15.0
_PATIENCE_S = 2.0  # a process that ends waits for its last push


@asynccontextmanager
async def pushing(
    registry: CollectorRegistry, address: str, about: Mapping[str, str], every_s: float = EVERY_S
) -> AsyncIterator[None]:
    """Push metrics again and again during the block. A collector that does not answer holds up nothing.

    Args: address, of the collector, without the path /v1/metrics; about, the attributes that name this
        process.
    """
    task = asyncio.create_task(_push(registry, f"{address}/v1/metrics", about, every_s))
    try:
        yield
    finally:
        task.cancel()


async def _push(registry: CollectorRegistry, url: str, about: Mapping[str, str], every_s: float) -> None:
    exporter = OTLPMetricExporter(url, timeout=_PATIENCE_S)
    outage, began_ns = Outage(log, "operator.otlp"), time.time_ns()

    def push() -> export.MetricExportResult:
        return exporter.export(metrics_data(registry, about, began_ns, time.time_ns()))

    while True:
        is_taken = False
        # OSError: of a disk or the connection. RuntimeError: the registry has grown during the collecting.
        with suppress(OSError, RuntimeError):
            # In a thread also the making: with a thousand streams it would hold up the event loop.
            is_taken = await asyncio.to_thread(push) is export.MetricExportResult.SUCCESS
        if is_taken:
            outage.over()
        else:
            outage.failed("the collector did not take the metrics")
        await asyncio.sleep(every_s)


def metrics_data(
    registry: CollectorRegistry, about: Mapping[str, str], began_ns: int, now_ns: int
) -> export.MetricsData:
    """Return the metrics that Prometheus would scrape, under the same names (without ``_total``) and labels.

    Args: began_ns, since when counters count, in nanoseconds since 1970.
    """
    metrics = [one for family in registry.collect() for one in _metrics_of(family, began_ns, now_ns)]
    scope = export.ScopeMetrics(InstrumentationScope("private-counts"), metrics, "")
    return export.MetricsData([export.ResourceMetrics(Resource(dict(about)), [scope], "")])


def _metrics_of(family: Family, began_ns: int, now_ns: int) -> Iterator[export.Metric]:
    """Yield a family as a metric; nothing if it has no sample."""
    data: Any
    if family.type == "histogram":
        points = list(_histograms(family, began_ns, now_ns))
        data = export.Histogram(points, export.AggregationTemporality.CUMULATIVE)
    else:
        points = [
            export.NumberDataPoint(dict(one.labels), began_ns, now_ns, one.value) for one in family.samples
        ]
        data = export.Gauge(points)
        if family.type == "counter":
            data = export.Sum(points, export.AggregationTemporality.CUMULATIVE, is_monotonic=True)
    if points:
        yield export.Metric(family.name, family.documentation, family.unit, data)


def _histograms(family: Family, began_ns: int, now_ns: int) -> Iterator[Any]:
    """Yield each series of a histogram; Prometheus' buckets hold all smaller ones, those of OTLP do not."""
    sums = dict[tuple[tuple[str, str], ...], float]()
    upto: dict[tuple[tuple[str, str], ...], dict[float, int]] = defaultdict(dict)
    for one in family.samples:
        labels = tuple((name, text) for name, text in one.labels.items() if name != "le")
        if one.name.endswith("_bucket"):
            upto[labels][float(one.labels["le"])] = int(one.value)
        elif one.name.endswith("_sum"):
            sums[labels] = one.value
    for labels, buckets in upto.items():
        bounds = [bound for bound in sorted(buckets) if bound < math.inf]
        counts = [buckets[bound] for bound in (*bounds, math.inf)]
        apart = [counts[0], *(after - before for before, after in pairwise(counts))]
        extremes: Any = {"min": None, "max": None}  # nobody has kept them
        yield export.HistogramDataPoint(
            dict(labels), began_ns, now_ns, counts[-1], sums[labels], apart, bounds, **extremes
        )
