"""Raw events and keys of visitors' names are deleted once no stream can need them, and not before."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.datastructures import Headers

from stream_app.config import Settings, StreamSettings, load, load_text
from stream_app.core.visits import DAY_US
from stream_app.ports import OperatorError
from stream_app.receiving import spool_writer
from stream_app.receiving.known_keys import KnownKeys
from stream_app.receiving.page_scripts import PastDayError, Sites
from stream_app.receiving.spool_writer import Incoming, SpoolWriter
from stream_app.sources.web_log import WebLogDecoder
from stream_app.spool import parts
from stream_app.vault.visitor_keys import VisitorKeys
from stream_app.wiring.deleting import Load, delete_once, destroy_visitor_keys, first_unreleased
from stream_app.wiring.event_logs import check_file, file_format, visitor_keys
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
        stream.name: Witness(bin) for stream, bin in zip(settings.streams, (*last_bins, None), strict=False)
    }
    needed = first_unreleased(settings.streams, witnesses, MemoryStore().load)  # type: ignore[arg-type]
    keys.destroy_before(asyncio.run(needed))
    return sorted(int(path.stem) for path in settings.state_dir.rglob("@visitors/*/*.key"))


def test_log_may_be_a_link_that_moves_each_day(tmp_path: Path) -> None:
    link, drawn = tmp_path / "access.log", set[tuple[str, bytes | None]]()
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
    assert keys.key(1) is None


def line_of(day: int, hour: int) -> bytes:
    return b'192.0.2.1 - - [%02d/Jan/1970:%02d:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "Mozilla/5.0"' % (
        day + 1,
        hour,
    )


def test_stream_that_comes_back_names_no_visitor_of_a_day_whose_key_is_gone(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def names(day: int, hour: int) -> str:
        stream = settings.streams[0]
        form = file_format(stream, visitor_keys(stream, settings.state_dir))
        [name] = WebLogDecoder(form, ["visitor"]).decode([line_of(day, hour)]).columns["visitor"]  # type: ignore[arg-type]
        return str(name)

    assert names(3, 10)
    alone = load_text(OF_LOG.partition("  slow:")[0], tmp_path / "app.yaml", {})
    assert destroyed(alone, 24 * 5 - 1) == []
    assert [names(3, 15), names(4, 15)] == ["", ""]  # the slow stream comes back, and had released day 2 only
    assert names(5, 15)

    async def looking() -> None:
        witnesses = {"pages": Witness(24 * 5 - 1), "slow": Witness(4 * 3 - 1)}
        needed = partial(first_unreleased, settings.streams[:2], witnesses, MemoryStore().load)  # type: ignore[arg-type]
        keys = visitor_keys(settings.streams[0], settings.state_dir)
        await asyncio.wait_for(destroy_visitor_keys(keys, needed), 0.2)

    with pytest.raises(TimeoutError):
        asyncio.run(looking())
    [said] = caplog.messages
    assert said.startswith("visitors of days before 1970-01-06 are refused")


def test_days_are_noted_before_their_keys_are_destroyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = VisitorKeys(tmp_path / "keys")
    drawn = keys.key(7)

    def crash(_: Path) -> None:
        assert VisitorKeys(tmp_path / "keys").gone_before() == 8
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr("stream_app.vault.visitor_keys.destroy", crash)
        with pytest.raises(OSError):
            keys.destroy_before(8)
    again = VisitorKeys(tmp_path / "keys")
    assert drawn is not None
    assert again.key(7) is None
    assert again.destroy_before(3) == 1
    assert again.key(7) is None


@pytest.mark.parametrize("visited", [(), (7,), (9,)])
def test_days_are_refused_whether_or_not_anybody_visited(tmp_path: Path, visited: tuple[int, ...]) -> None:
    keys = VisitorKeys(tmp_path / "keys")
    for day in visited:
        keys.key(day)
    keys.destroy_before(8)
    assert keys.key(7) is None
    assert keys.key(8) is not None


@pytest.mark.parametrize("why", ["stopped", "has_ended", "unit event"])
def test_no_key_of_a_past_day_is_left_once_no_stream_needs_one(settings: Settings, why: str) -> None:
    keys, today = visitor_keys(settings.streams[0], settings.state_dir), time.time_ns() // 1_000 // DAY_US
    for day in (1, 2, today + 1):
        keys.key(day)

    async def over(stream: str) -> object:
        return SimpleNamespace(stopped=why == "stopped", has_ended=why == "has_ended")

    streams = settings.streams[2:] if why == "unit event" else settings.streams
    witnesses = {stream.name: Witness(1) for stream in streams}
    needed = asyncio.run(first_unreleased(streams, witnesses, over))  # type: ignore[arg-type]
    assert needed in (today, today + 1)  # midnight may pass
    assert keys.destroy_before(needed) == 2


def test_destroyed_key_is_overwritten(settings: Settings, tmp_path: Path) -> None:
    keys = VisitorKeys(tmp_path / "keys")
    key = keys.key(7)
    [file] = (tmp_path / "keys").glob("*.key")
    held = file.open("rb")
    assert keys.destroy_before(8) == 1
    with held:
        assert key is not None
        assert held.read() == bytes(len(key))
    assert not file.exists()


def test_damaged_key_ends_the_stream_in_one_line(tmp_path: Path) -> None:
    keys = VisitorKeys(tmp_path)
    keys.key(DAY_US)
    (tmp_path / f"{DAY_US}.key").write_bytes(b"short")
    with pytest.raises(OperatorError, match="holds no key of visitors' names; put the right one back"):
        keys.key(DAY_US)


def test_clock_that_is_set_back_over_midnight_gives_no_second_name(tmp_path: Path) -> None:
    keys, now_us = VisitorKeys(tmp_path), [20_000 * DAY_US - 3_000_000]
    sites = Sites({"shop.example": "clicks"}, keys.key, now_us=lambda: now_us[0])
    body = b'{"n": "pageview", "u": "https://shop.example/", "d": "shop.example"}'
    visit = partial(
        sites.event_of, "/api/event", body, Headers({"user-agent": "Mozilla/5.0 (X11; Linux)"}), "203.0.113.1"
    )
    visit()
    now_us[0] += 4_000_000
    visit()
    keys.destroy_before(now_us[0] // DAY_US)
    now_us[0] -= 2_000_000
    with pytest.raises(PastDayError, match="the listener's clock shows a day that is over; correct it"):
        visit()
