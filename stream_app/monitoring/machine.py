"""Metrics of this process and of the disks that it writes to: memory, open files, free space."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector


def watch_machine(registry: CollectorRegistry, directories: Mapping[str, Path]) -> None:
    """Add the metrics. Args: directories, by the configuration key that names each."""
    ProcessCollector(registry=registry)
    new = partial(Gauge, namespace="stream_app", labelnames=["directory"], registry=registry)
    free = new("disk_free_bytes", "Free space of the disk of a directory, for this process's user")
    size = new("disk_size_bytes", "Size of the disk of a directory")
    for key, directory in directories.items():
        free.labels(key).set_function(partial(_free_bytes, directory))
        size.labels(key).set_function(partial(_size_bytes, directory))


def _free_bytes(directory: Path) -> float:
    disk = _disk(directory)
    return math.nan if disk is None else float(disk.f_bavail * disk.f_frsize)


def _size_bytes(directory: Path) -> float:
    disk = _disk(directory)
    return math.nan if disk is None else float(disk.f_blocks * disk.f_frsize)


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
