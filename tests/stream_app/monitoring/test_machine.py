"""The operator sees how full disks are, how much memory a process takes, and when its certificates end."""

from __future__ import annotations

import math
import os
import ssl
import subprocess
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from stream_app.config import load
from stream_app.monitoring.machine import watch_machine
from stream_app.wiring.process import client_certificates
from tests.certificates import write_certificates


def test_free_space_is_that_of_the_disk_of_the_directory_even_before_it_is_made(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    watch_machine(registry, {"state.dir": tmp_path / "not" / "yet", "ingest.dir": Path("/dev/null/no")}, {})
    size = os.statvfs(tmp_path)

    def shown(name: str, directory: str) -> float:
        value = registry.get_sample_value(f"stream_app_disk_{name}_bytes", {"directory": directory})
        assert value is not None
        return value

    assert shown("size", "state.dir") == size.f_blocks * size.f_frsize
    assert 0 < shown("free", "state.dir") <= shown("size", "state.dir")
    assert math.isnan(shown("free", "ingest.dir"))
    assert (registry.get_sample_value("process_resident_memory_bytes") or 0) > 1e6


def test_end_of_a_certificate_is_that_of_the_file_now(tmp_path: Path) -> None:
    write_certificates(tmp_path, "api")
    registry = CollectorRegistry()
    watch_machine(registry, {}, {"api.tls.certificate": tmp_path / "api.pem", "lost": tmp_path / "no.pem"})

    def shown(key: str) -> float:
        name = "stream_app_certificate_ends_timestamp_seconds"
        value = registry.get_sample_value(name, {"certificate": key})
        assert value is not None
        return value

    said = ssl.cert_time_to_seconds(
        subprocess.run(
            ["openssl", "x509", "-enddate", "-noout", "-in", tmp_path / "api.pem"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip().removeprefix("notAfter=")
    )  # fmt: skip
    assert shown("api.tls.certificate") == said > time.time()
    assert math.isnan(shown("lost"))
    (tmp_path / "api.pem").write_text("no certificate")
    assert math.isnan(shown("api.tls.certificate"))


def test_client_certificates_of_a_worker_are_found_by_their_keys(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text("""
redis: {url: "rediss://cache:6379/0", tls: {ca: ca.pem, certificate: redis.pem, key: redis.key}}
kafka:
  bootstrap_servers: "one:9092"
  ssl.certificate.location: one.pem
  clusters: {eu: {bootstrap_servers: "two:9092", ssl.certificate.location: two.pem}}
streams:
  clicks:
    source: {topic: clicks}
    time: {field: at, format: ms, bin: 1m, grace: 5s, epoch: 1d}
    privacy: {epsilon: 1}
""")
    assert client_certificates(load(file, {})) == {
        "kafka.ssl.certificate.location": tmp_path / "one.pem",
        "kafka.clusters.eu.ssl.certificate.location": tmp_path / "two.pem",
        "redis.tls.certificate": tmp_path / "redis.pem",
    }
