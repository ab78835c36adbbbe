"""Metrics of this process, of the disks that it writes to, and of its certificates."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from cryptography import x509
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector


def watch_machine(
    registry: CollectorRegistry, directories: Mapping[str, Path], certificates: Mapping[str, Path]
) -> None:
    """Add the metrics. Args: directories and PEM files, by the configuration key that names each."""
    ProcessCollector(registry=registry)
    new = partial(Gauge, namespace="stream_app", labelnames=["directory"], registry=registry)
    free = new("disk_free_bytes", "Free space of the disk of a directory, for this process's user")
    size = new("disk_size_bytes", "Size of the disk of a directory")
    for key, directory in directories.items():
        free.labels(key).set_function(partial(_free_bytes, directory))
        size.labels(key).set_function(partial(_size_bytes, directory))
    ends = Gauge(
        "certificate_ends_timestamp_seconds",
        "When the certificate in a file is valid no longer, in seconds since 1970",
        namespace="stream_app",
        labelnames=["certificate"],
        registry=registry,
    )
    for key, file in certificates.items():
        ends.labels(key).set_function(partial(_ends_s, file))


def _free_bytes(directory: Path) -> float:
    disk = _disk(directory)
    return math.nan if disk is None else float(disk.f_bavail * disk.f_frsize)


def _size_bytes(directory: Path) -> float:
    disk = _disk(directory)
    return math.nan if disk is None else float(disk.f_blocks * disk.f_frsize)


def _ends_s(file: Path) -> float:
    """Return when the first certificate of a PEM file ends, which is the process's own; NaN without one."""
    try:
        return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return math.nan


def _disk(directory: Path) -> os.statvfs_result | None:
    """Return the disk of a directory, also of one that will be made; None if it cannot be asked."""
    for place in (directory, *directory.parents):
        try:
            return os.statvfs(place)
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None
