"""The operator sees how full the disks of a process are, and how much memory it takes."""

from __future__ import annotations

import math
import os
from pathlib import Path

from prometheus_client import CollectorRegistry

from stream_app.monitoring.machine import watch_machine


def test_free_space_is_that_of_the_disk_of_the_directory_even_before_it_is_made(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    watch_machine(registry, {"state.dir": tmp_path / "not" / "yet", "ingest.dir": Path("/dev/null/no")})
    size = os.statvfs(tmp_path)

    def shown(name: str, directory: str) -> float:
        value = registry.get_sample_value(f"stream_app_disk_{name}_bytes", {"directory": directory})
        assert value is not None
        return value

    assert shown("size", "state.dir") == size.f_blocks * size.f_frsize
    assert 0 < shown("free", "state.dir") <= shown("size", "state.dir")
    assert math.isnan(shown("free", "ingest.dir"))
    assert (registry.get_sample_value("process_resident_memory_bytes") or 0) > 1e6
