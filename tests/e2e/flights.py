"""The demo's events, recounted from the file without any code of the service."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np

START = datetime(2013, 1, 1, 5, tzinfo=UTC)
HOURS = 8_760


@cache  # 0.9 s
def recount(file: Path, hours: int = HOURS) -> np.ndarray:
    """Return the number of events per hour since START, shape (hours,)."""
    with file.open() as lines:
        scheduled = Counter(json.loads(line)["scheduled"][: len("2013-01-01T05")] for line in lines)
    return np.array([scheduled[instant(hour)[: len("2013-01-01T05")]] for hour in range(hours)])


def instant(hour: int) -> str:
    """Return the start of an hour as RFC 3339."""
    return (START + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:%M:%SZ")


def configuration(
    file: Path,
    port: int,
    *,
    hours: int = HOURS,
    speed: str = "max",
    streams: Iterable[tuple[str, str]] = (("departures", "epsilon: 1.0e9, not_private: true"),),
) -> str:
    """Return a configuration over the flights.

    Args: streams, the name and the ``privacy`` section of each stream.
    """
    text = f'redis: {{url: "embedded:./redis"}}\nstate: {{dir: ./state}}\napi: {{port: {port}}}\n'
    text += "publish_every: 250ms\nstreams:\n"
    for name, privacy in streams:
        text += f"""  {name}:
    source: {{file: "{file}", replay: {{from: {instant(0)}, to: {instant(hours)}, speed: {speed}}}}}
    time: {{field: scheduled, format: iso8601, bin: 1h, epoch: {hours}h}}
    privacy: {{{privacy}}}
"""
    return text
