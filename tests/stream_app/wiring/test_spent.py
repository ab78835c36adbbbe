"""Raw events and keys of visitors' names are deleted once no stream can need them, and not before."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stream_app.config import Settings, StreamSettings, load, load_text
from stream_app.core.visits import DAY_US
from stream_app.ports import OperatorError
from stream_app.receiving import spool_writer
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from stream_app.spool import parts
from stream_app.vault.visitor_keys import VisitorKeys
from stream_app.wiring.event_logs import check_file, visitor_keys
from stream_app.wiring.spent import Load, delete_once, first_unreleased
from tests.models.memory import MemoryStore

HOUR_US = 3_600_000_000
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


OF_LOG = """
streams:
  pages:
    source: {file: access.log, format: combined}
    time: {bin: 1h, epoch: 1d, grace: 1m, first: 1970-01-02T00:00:00Z}
    privacy: {epsilon: 1}
  slow:
    source: {file: access.log, format: combined}
    time: {bin: 6h, epoch: 1d, grace: 1m, first: 1970-01-02T00:00:00Z}
    privacy: {epsilon: 1, accept: measured again}
  requests:
    source: {file: access.log, format: combined}
    time: {bin: 1h, epoch: 1d, grace: 1m, first: 1970-01-02T00:00:00Z}
    privacy: {epsilon: 1, accept: measured again, unit: event}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return the settings of three streams over one log."""
    return load_text(OF_LOG, tmp_path / "app.yaml", {})


def destroyed(settings: Settings, *last_bins: int | None) -> list[int]:
    """Destroy what no stream needs; return the days whose keys are left."""
    keys = visitor_keys(settings.streams[0], settings.state_dir)
    witnesses = {
        stream.name: Witness(bin) for stream, bin in zip(settings.streams, (*last_bins, None), strict=True)
    }
    needed = first_unreleased(settings.streams, witnesses, MemoryStore().load)  # type: ignore[arg-type]
    keys.destroy_before(asyncio.run(needed))
    return sorted(int(path.stem) for path in settings.state_dir.rglob("@visitors/*/*.key"))


def test_log_may_be_a_link_that_moves_each_day(tmp_path: Path) -> None:
    link, drawn = tmp_path / "access.log", set[tuple[str, bytes]]()
    for day in (1, 2):
        (today := link.with_name(f"access.2026030{day}.log")).touch()
        link.unlink(missing_ok=True)
        link.symlink_to(today)
        settings = load_text(OF_LOG, tmp_path / "app.yaml", {})
        stream = settings.streams[0]
        check_file(stream, settings.state_dir)
        drawn.add((stream.declared.source.name, visitor_keys(stream, settings.state_dir).key(7)))
    assert len(drawn) == 1


def test_key_stays_the_same_until_every_stream_has_released_its_day(settings: Settings) -> None:
    keys = visitor_keys(settings.streams[0], settings.state_dir)
    drawn = [keys.key(day) for day in (1, 2, 3)]
    assert len(set(drawn)) == 3
    # Day 1 has the hours 24 to 47, and the quarters 4 to 7; the stream of single events needs no key.
    assert destroyed(settings, 71, None) == [1, 2, 3]
    assert destroyed(settings, 71, 6) == [1, 2, 3]
    assert destroyed(settings, 46, 11) == [1, 2, 3]
    assert visitor_keys(settings.streams[1], settings.state_dir).key(1) == drawn[0]
    assert destroyed(settings, 47, 7) == [2, 3]
    assert destroyed(settings, 95, 14) == [3]
    assert keys.key(3) == drawn[2]
    assert keys.key(1) != drawn[0]


def test_destroyed_key_is_overwritten(settings: Settings, tmp_path: Path) -> None:
    keys = VisitorKeys(tmp_path / "keys")
    key = keys.key(7)
    [file] = (tmp_path / "keys").glob("*.key")
    held = file.open("rb")
    assert keys.destroy_before(8) == 1
    with held:
        assert held.read() == bytes(len(key))
    assert not file.exists()


def test_damaged_key_ends_the_stream_in_one_line(tmp_path: Path) -> None:
    keys = VisitorKeys(tmp_path)
    keys.key(DAY_US)
    (tmp_path / f"{DAY_US}.key").write_bytes(b"short")
    with pytest.raises(OperatorError, match="holds no key of visitors' names; put the right one back"):
        keys.key(DAY_US)
