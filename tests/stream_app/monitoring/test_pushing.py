"""A collector gets by OTLP what Prometheus would scrape, and its silence holds up nothing."""

from __future__ import annotations

import io
import json
import logging
import math
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.parser import text_string_to_metric_families

from deploy.ports import free_port
from stream_app.config.settings import OperatorSettings
from stream_app.monitoring.api_metrics import ReadingMetrics
from stream_app.monitoring.logs import handler
from stream_app.monitoring.metrics import Metrics
from stream_app.wiring.process import operator_endpoint
from tests.patience import eventually, eventually_async
from tests.stream_app.config.test_load import LIVE, read

pytestmark = pytest.mark.slow

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@contextmanager
def collector(got: list[ExportMetricsServiceRequest], status: int = 200) -> Iterator[str]:
    """Run a collector that reads OTLP by its own definition; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert (self.path, self.headers["content-type"]) == ("/v1/metrics", "application/x-protobuf")
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append(ExportMetricsServiceRequest.FromString(body))
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def scraped(text: str) -> Samples:
    """Return the samples that Prometheus gets."""
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def pushed(request: ExportMetricsServiceRequest) -> Samples:
    """Return what was pushed, as Prometheus would have got it."""
    found: Samples = {}
    [resource] = request.resource_metrics
    [scope] = resource.scope_metrics
    for metric in scope.metrics:
        kind = str(metric.WhichOneof("data"))
        for point in getattr(metric, kind).data_points:
            labels = sorted((one.key, one.value.string_value) for one in point.attributes)
            if kind == "histogram":
                upto = 0
                bounds = [*map(str, point.explicit_bounds), "+Inf"]
                for bound, count in zip(bounds, point.bucket_counts, strict=True):
                    upto += count
                    found[f"{metric.name}_bucket", tuple(sorted([*labels, ("le", bound)]))] = upto
                found[f"{metric.name}_count", tuple(labels)] = point.count
                found[f"{metric.name}_sum", tuple(labels)] = point.sum
                assert not point.HasField("min")
            else:
                name = f"{metric.name}_total" if kind == "sum" else metric.name
                found[name, tuple(labels)] = point.as_double
                assert kind == "gauge" or (
                    metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2
                )
    return found


def without_moving(samples: Samples) -> Samples:
    """Return samples that stay between two readings, with a text in place of NaN."""
    moving = ("process_", "stream_app_disk", "stream_app_waiting", "python_")
    return {
        key: "NaN" if math.isnan(value) else value  # type: ignore[misc]
        for key, value in samples.items()
        if not key[0].startswith(moving)
    }


async def test_collector_gets_what_prometheus_scrapes(tmp_path: Path) -> None:
    metrics = Metrics(lambda: 0.0)
    metrics.releases.labels("clicks").inc(3)
    metrics.lag.labels("file:a", "0").set(7)
    for seconds in (0.002, 0.3, 100.0):
        metrics.redis_seconds.labels("apply").observe(seconds)
    metrics.redis_seconds.labels("seal").observe(0.004)
    got: list[ExportMetricsServiceRequest] = []
    with collector(got) as address:
        text = f"operator: {{port: {free_port()}, otlp: {address}/}}\n"
        operator = read(tmp_path, LIVE + text).operator
        assert operator is not None
        async with operator_endpoint("operator.port", metrics, operator):
            await eventually_async(lambda: _some(got), "metrics are pushed")
    attributes = {one.key: one.value.string_value for one in got[0].resource_metrics[0].resource.attributes}
    assert attributes["service.name"] == "private-counts-worker"
    assert attributes["service.instance.id"].endswith(f":{operator.port}")
    found = without_moving(pushed(got[0]))
    assert found == without_moving(scraped(metrics.exposition().decode()))
    assert found["stream_app_releases_total", (("stream", "clicks"),)] == 3
    assert ("stream_app_redis_seconds_bucket", (("call", "apply"), ("le", "+Inf"))) in found


async def test_metric_that_cannot_be_read_ends_no_pushing() -> None:
    got: list[ExportMetricsServiceRequest] = []
    metrics = Metrics(lambda: 0.0)
    faults = [OSError("no disk"), RuntimeError("dictionary changed size during iteration")]

    def bytes_kept() -> float:
        if faults:
            raise faults.pop()
        return 7.0

    metrics.clock_ahead.set_function(bytes_kept)
    from stream_app.monitoring.pushing import pushing  # another test takes its packages away

    with collector(got) as address:
        async with pushing(metrics.registry, address, {}, every_s=0.01):
            await eventually_async(lambda: _some(got), "metrics are pushed")
    assert pushed(got[0])["stream_app_clock_ahead_seconds", ()] == 7.0


async def test_process_does_not_begin_without_the_packages_that_push(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task beside the process would end alone, and nobody would see it."""
    monkeypatch.delitem(sys.modules, "stream_app.monitoring.pushing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    operator = OperatorSettings("127.0.0.1", free_port(), otlp="http://127.0.0.1:1")
    with pytest.raises(ModuleNotFoundError, match=r"opentelemetry\.sdk\.metrics"):
        async with operator_endpoint("operator.port", Metrics(), operator):
            pass


def test_every_series_of_each_process_is_pushed_once() -> None:
    """In a process of its own: the worker's metrics would set what the others need."""
    pushed_twice = """
from stream_app.monitoring import pushing
from stream_app.monitoring.alert_metrics import AlertingMetrics
from stream_app.monitoring.api_metrics import ReadingMetrics
from stream_app.monitoring.ingest_metrics import ReceivingMetrics
for metrics in AlertingMetrics(), ReadingMetrics(), ReceivingMetrics({}, 1):
    if hasattr(metrics, "know"):
        metrics.know("log")
    if hasattr(metrics, "watch"):
        metrics.answered("/", 200, 0.1)
    [resource] = pushing.metrics_data(metrics.registry, {}, 1, 2).resource_metrics
    for metric in resource.scope_metrics[0].metrics:
        series = [str(point.attributes) for point in metric.data.data_points]
        assert len(set(series)) == len(series), (metric.name, series)
"""
    subprocess.run([sys.executable, "-c", pushed_twice], check=True)


async def _some(got: list[ExportMetricsServiceRequest]) -> bool:
    return bool(got)


async def test_collector_that_refuses_is_logged_and_metrics_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    got: list[ExportMetricsServiceRequest] = []
    with collector(got, status=400) as address, caplog.at_level(logging.WARNING):
        operator = OperatorSettings("127.0.0.1", free_port(), otlp=address)

        async def logged() -> bool:
            return "operator.otlp: the collector did not take the metrics" in caplog.text

        async with operator_endpoint("api.operator_port", ReadingMetrics(), operator):
            await eventually_async(logged, "the refusal is logged")


async def test_collector_that_is_not_there_is_logged_in_one_line() -> None:
    lines = io.StringIO()
    told, root = handler("worker", lines), logging.getLogger()
    operator = OperatorSettings("127.0.0.1", free_port(), otlp=f"http://127.0.0.1:{free_port()}")

    async def logged() -> bool:
        return "operator.otlp" in lines.getvalue()

    root.addHandler(told)
    try:
        async with operator_endpoint("operator.port", Metrics(), operator):
            await eventually_async(logged, "the outage is logged")
    finally:
        root.removeHandler(told)
    [line] = lines.getvalue().splitlines()
    assert json.loads(line)["event"] == "operator.otlp: the collector did not take the metrics; trying again"


SOURCES = Path(__file__).with_name("collector")
CONFIG = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{debug: {{verbosity: detailed}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [debug]}}}}
"""


@pytest.fixture(name="running")
def _running(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Run a real collector, built from its Go modules; yield its address and the file to which it prints."""
    go = shutil.which("go")
    assert go is not None, "Go is missing: install version 1.25 or newer"
    subprocess.run([go, "build", "-o", tmp_path / "collector", "."], cwd=SOURCES, check=True)
    port, said = free_port(), tmp_path / "said"
    (tmp_path / "config.yaml").write_text(CONFIG.format(port=port))
    with said.open("wb") as output:
        process = subprocess.Popen(
            [tmp_path / "collector", "--config", f"file:{tmp_path / 'config.yaml'}"],
            stdout=output,
            stderr=output,
        )
        try:
            eventually(lambda: "Everything is ready" in said.read_text(), said.read_text)
            yield f"http://127.0.0.1:{port}", said
        finally:
            process.terminate()
            process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_real_collector_takes_the_metrics(running: tuple[str, Path]) -> None:
    address, said = running
    metrics = Metrics(lambda: 0.0)
    metrics.releases.labels("clicks").inc(3)
    for seconds in (0.002, 0.3):
        metrics.redis_seconds.labels("apply").observe(seconds)

    async def printed() -> str:
        found = re.findall(r"Name: stream_app_redis_seconds\n.*?Metric #", said.read_text(), re.S)
        return said.read_text() if found else ""

    operator = OperatorSettings("127.0.0.1", free_port(), otlp=address)
    async with operator_endpoint("operator.port", metrics, operator):
        shown = await eventually_async(printed, said.read_text)
    assert "service.name: Str(private-counts-worker)" in shown
    for name, facts in {
        "releases": ("DataType: Sum", "IsMonotonic: true", "-> stream: Str(clicks)", "Value: 3.0"),
        "redis_seconds": ("DataType: Histogram", "-> call: Str(apply)", "Count: 2"),
        "waiting": ("DataType: Gauge", "-> service: Str(redis)"),
    }.items():
        [metric, *_] = re.findall(rf"Name: stream_app_{name}\n.*?(?=Metric #|\Z)", shown, re.S)
        assert [fact for fact in facts if fact not in metric] == [], metric
