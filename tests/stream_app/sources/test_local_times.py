"""Times without an offset, against a search through all instants of days on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from stream_app.sources.decode import CsvDecoder, NdjsonDecoder, TimeField
from stream_app.sources.times import times_us

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
STEP = timedelta(minutes=10)
# Two days of changes each; Lord Howe changes by half an hour, Apia once skipped a day.
CHANGES = [
    ("Europe/Paris", "2026-03-29"),
    ("Europe/Paris", "2026-10-25"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("America/Sao_Paulo", "2018-02-18"),
    ("America/Sao_Paulo", "2018-11-04"),
    ("Pacific/Apia", "2011-12-30"),
    ("Pacific/Apia", "2012-04-01"),
]


def shown_by_clocks(zone: str, day: datetime) -> list[tuple[datetime, datetime]]:
    """Return instants around a day, each with what clocks in the zone show, in order."""
    first = day.replace(tzinfo=UTC) - timedelta(days=3)
    instants = [first + STEP * n for n in range(6 * 24 * 6)]
    return [(at, at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for at in instants]


def expected(shown: list[tuple[datetime, datetime]], local: datetime) -> datetime:
    """Return the first instant at which clocks show a time; if none does, by the offset before the change."""
    if found := [at for at, clock in shown if clock == local]:
        return found[0]
    at, clock = next(before for before, after in pairwise(shown) if before[1] < local < after[1])
    return at + (local - clock)


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@pytest.mark.parametrize("written", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y%m%dT%H%M%S"])
def test_local_times_of_a_day_of_change_are_those_of_a_search(zone: str, day: str, written: str) -> None:
    begin = datetime.fromisoformat(day)
    shown = shown_by_clocks(zone, begin)
    local = [begin - timedelta(hours=12) + STEP * n for n in range(2 * 24 * 6)]
    read, good = times_us([one.strftime(written) for one in local], "iso8601", zone)
    assert good.all()
    wanted = [(expected(shown, one) - _1970) // timedelta(microseconds=1) for one in local]
    assert read.tolist() == wanted


def test_a_time_is_read_alone_and_an_offset_stays() -> None:
    texts = [
        "2026-10-25 02:30:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T02:30:00.5",
        "lost",
        "2026-10-25",
    ]
    together, good = times_us(texts, "iso8601", "Europe/Paris")
    assert good.tolist() == [True, True, True, False, True]
    assert together[1] - together[0] == 3_600_000_000
    for number, text in enumerate(texts):
        alone, _ = times_us([text], "iso8601", "Europe/Paris")
        assert alone[0] == together[number]
    assert times_us(texts, "iso8601")[1].tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("text", ["0001-01-01 00:00:00", "9999-12-31 23:59:59", "2026-02-30 00:00:00", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    assert not times_us([text], "iso8601", "Pacific/Apia")[1].any()


def test_decoders_of_every_text_format_use_the_zone() -> None:
    field = TimeField("at", "iso8601", "Asia/Kolkata")
    for found in (
        CsvDecoder(["at"], field).decode([b"1970-01-01 05:30:01"]),
        NdjsonDecoder(field).decode([b'{"at": "1970-01-01T05:30:01"}']),
    ):
        assert found.columns["at"].tolist() == [1_000_000]
