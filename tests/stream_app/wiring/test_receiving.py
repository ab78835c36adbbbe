"""Raw events are deleted when they are old enough and no stream can need them again, and not before."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stream_app.config import StreamSettings, load
from stream_app.receiving import spool_writer
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from stream_app.spool import parts
from stream_app.wiring.spent import Load, delete_once
from tests.models.memory import MemoryStore

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
TEXT = """
streams:
  clicks:
    source: {http: web, keep: 1d}
    time: {field: at, format: us, bin: 1h, grace: 1h, epoch: 1d, max_ahead: 1h}
    privacy: {epsilon: 1.0}
  slow:
    source: {http: web, keep: 1d}
    time: {field: at, format: us, bin: 1h, grace: 1h, epoch: 1d, max_ahead: 1h}
    privacy: {epsilon: 1.0}
"""


class Witness:
    """The witness of one stream, whose last row is of a given bin; None for no row."""

    def __init__(self, bin: int | None) -> None:
        self._bin = bin

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        if self._bin is None:
            return None
        return 1, json.dumps({"seq": 1, "epoch": 0, "bin": self._bin, "prev": ""}).encode()


@pytest.fixture
def streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[StreamSettings, ...]:
    """Return two streams over a spool with a part for each of 30 hours."""
    monkeypatch.setattr(spool_writer, "PART_BYTES", 1)
    (tmp_path / "app.yaml").write_text(TEXT)
    settings = load(tmp_path / "app.yaml")
    now_us = [0]
    writer = SpoolWriter(settings.spools["web"], 1 << 30, KnownKeys(DAY_US, 100), lambda: now_us[0])
    for hour in range(30):
        now_us[0] = hour * HOUR_US
        writer.append([Incoming(b"%d\n" % hour)])
    writer.close()
    return settings.streams


def left(streams: tuple[StreamSettings, ...]) -> list[int]:
    """Return the hours whose events are left."""
    found = b"".join(one.records.read_bytes() for one in parts(streams[0].source.file))  # type: ignore[union-attr]
    return [int(line) for line in found.split()]


def delete(
    streams: tuple[StreamSettings, ...], now_us: int, *bins: int | None, load: Load | None = None
) -> list[int]:
    """Delete once, with the last witnessed bins of both streams; return the hours that are left."""
    load = load or MemoryStore().load
    names = [stream.name for stream in streams]
    witnesses = {name: Witness(bin) for name, bin in zip(names, bins, strict=True)}
    asyncio.run(delete_once(streams, witnesses, 5_000_000, now_us, load))  # type: ignore[arg-type]
    return left(streams)


def test_events_are_kept_as_long_as_declared(streams: tuple[StreamSettings, ...]) -> None:
    assert delete(streams, 30 * HOUR_US, 1000, 1000) == list(range(6, 30))


def test_events_are_kept_until_all_streams_have_released_their_bins(
    streams: tuple[StreamSettings, ...],
) -> None:
    later_us = 100 * DAY_US
    assert delete(streams, later_us, 1000, None) == list(range(30))
    # max_ahead is 2 bins with the grace: an event of hour 6 can count in bin 8, and hour 7 needs bin 9 or 10.
    assert streams[0].declared.time.max_ahead_bins == 2
    assert delete(streams, later_us, 1000, 9) == list(range(7, 30))
    assert delete(streams, later_us, 1000, 1000) == []


def test_a_spool_without_events_has_nothing_to_delete(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(TEXT.partition("  slow:")[0])
    stream = load(tmp_path / "app.yaml").streams[0]
    deleting = delete_once([stream], {"clicks": Witness(1)}, 0, DAY_US, MemoryStore().load)  # type: ignore[dict-item]
    assert asyncio.run(deleting) == 0
