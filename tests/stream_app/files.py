"""Event files for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from stream_app.sources.decode import TimeField

AT = TimeField("at", "us")
USER = "user"


def event_line(time_us: int, **more: object) -> bytes:
    """Return one event as a line."""
    return json.dumps({"at": time_us, **more}).encode() + b"\n"


def write_events(path: Path, times_us: Iterable[int]) -> Path:
    """Write a file of events."""
    path.write_bytes(b"".join(event_line(time_us, n=n) for n, time_us in enumerate(times_us)))
    return path
