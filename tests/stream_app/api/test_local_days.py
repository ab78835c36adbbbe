"""Series and slices over calendar days of a reader's time zone are exact sums of hourly bins."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from tests.stream_app.api.client import EXACT, Api, with_api
from tests.stream_app.published import FIRST_BIN

pytestmark = pytest.mark.slow

MARCH_28 = FIRST_BIN + 86 * 24  # clocks change in Paris on 31 March 2013, at 01:00 UTC
COUNTS = [hour % 5 for hour in range(7 * 24)]
PARIS = {"kind": "bin", "days": 1, "timezone": "Europe/Paris"}


@with_api(COUNTS, epoch_bins=256, first_bin=MARCH_28, epsilon=EXACT)
async def test_days_of_paris_are_exact_sums_of_their_hours(api: Api) -> None:
    found = await api.json("series", **PARIS)
    lengths = [round(end - start) // 3600 for start, end in zip(found["start"], found["end"], strict=True)]
    assert lengths == [24, 24, 23, 24, 24, 24]  # the range cuts off a first hour and a last 22 hours
    edges = [0]
    for length in lengths:
        edges.append(edges[-1] + length)
    days = [sum(COUNTS[23 + start : 23 + stop]) for start, stop in pairwise(edges)]
    assert [round(value) for value in found["value"]] == days
    assert (found["days"], found["timezone"]) == (1, "Europe/Paris")
    text = await api.get("series", **PARIS, format="csv")
    assert text.text.splitlines()[1].startswith("2013-03-28T23:00:00Z,2013-03-29T23:00:00Z,")


@with_api(COUNTS, epoch_bins=256, first_bin=MARCH_28)
async def test_days_have_intervals_of_counts_over_the_same_hours(api: Api) -> None:
    found = await api.json("series", **PARIS)
    one = await api.json("count", start="2013-03-30T23:00:00Z", end="2013-03-31T22:00:00Z")
    assert found["value"][2] == pytest.approx(one["value"])
    assert [found["lower"][2], found["upper"][2]] == pytest.approx(one["interval"])


@with_api(COUNTS, epoch_bins=256, first_bin=MARCH_28)
async def test_ends_of_a_range_that_fill_no_group_are_named(api: Api) -> None:
    note = (await api.json("series", **PARIS))["note"]
    assert "2013-03-28T00:00:00Z to 2013-03-28T23:00:00Z is left out: it is only a part of a day." in note
    assert note.count("left out") == 2
    for bins, times in ((10, 1), (len(COUNTS), 0), (len(COUNTS) + 1, 1), (1, 0)):
        assert (await api.json("series", kind="bin", step=bins))["note"].count("left out") == times, bins
    for query in ({"kind": "running"}, {"kind": "window", "window": 3}):
        note = (await api.json("series", step=10, **query))["note"]
        assert "left out" not in note
        assert "no point" not in note
    for query in ({"kind": "running", "step": 1_000}, {"kind": "window", "window": 1_000}):
        assert "The range has no point: it is shorter" in (await api.json("series", **query))["note"]


@with_api(COUNTS, epoch_bins=256, first_bin=MARCH_28)
async def test_slices_in_days_cover_the_range(api: Api) -> None:
    found = await api.json("preview", epsilon=0.5, days=1, timezone="Europe/Paris")
    assert found["start"][0] == MARCH_28 * 3600
    assert found["end"][-1] == (MARCH_28 + len(COUNTS)) * 3600
    assert len(found["start"]) == 8
    assert found["note"].startswith("The first and the last slice are each shorter")


@with_api(COUNTS, epoch_bins=256, first_bin=MARCH_28)
async def test_days_that_cannot_be_counted_are_refused_with_remedy(api: Api) -> None:
    for query, line in (
        ({"kind": "bin", "months": 1, "timezone": "Asia/Kolkata"}, "begins inside a bin"),
        ({"kind": "bin", "months": 1, "days": 1}, "does not stand beside days"),
        ({"kind": "running", "months": 3}, "months: need kind=bin"),
        ({"kind": "bin", "months": 0}, "months"),
        ({"kind": "bin", "months": 1.5}, "months"),
        ({"kind": "bin", "days": 2, "week_start": "sunday"}, "belongs to weeks"),
        ({"kind": "bin", "months": 1, "week_start": "sunday"}, "belongs to weeks"),
        ({"kind": "bin", "days": 7, "week_start": "sun"}, "week_start"),
        ({"kind": "bin", "week_start": "sunday"}, "add days=1"),
        ({"kind": "bin", "days": 1, "timezone": "Asia/Kolkata"}, "begins inside a bin"),
        ({"kind": "bin", "days": 1, "timezone": "Mars"}, "is not a time zone"),
        ({"kind": "bin", "days": 1, "timezone": "localtime"}, "is not a time zone"),  # of the server
        ({"kind": "bin", "timezone": "Europe/Paris"}, "add days=1"),
        ({"kind": "running", "days": 1}, "need kind=bin"),
        ({"kind": "bin", "days": 1, "step": 2}, "need kind=bin and no step"),
    ):
        refused = await api.get("series", **query)
        assert refused.status_code in (400, 422), query
        assert line in refused.json()["error"]


YEAR_END = (20_454 * 24) - 1  # 2025-12-31T23:00Z: the year 2026 begins in Paris
# As many events a day as the number of its month, at noon of UTC, from 1 January to 30 April 2026.
OF_2026 = [0] * (120 * 24 - 1)
for _month, _begins, _days in ((1, 0, 31), (2, 31, 28), (3, 59, 31), (4, 90, 30)):
    for _day in range(_begins, _begins + _days):
        OF_2026[_day * 24 + 13] = _month


@with_api(OF_2026, epoch_bins=4_096, first_bin=YEAR_END, epsilon=EXACT)
async def test_months_are_whole_calendar_months_of_the_zone(api: Api) -> None:
    for zone, months, start, values, left_out in (
        ("Europe/Paris", 1, None, [31, 56, 93, 120], ""),
        ("Europe/Paris", 2, None, [87, 213], ""),
        ("Europe/Paris", 3, None, [180], "2026-03-31T22:00:00Z to 2026-04-30T22:00:00Z is left out"),
        ("Europe/Paris", 12, None, [], "2025-12-31T23:00:00Z to 2026-04-30T22:00:00Z is left out"),
        ("Europe/Paris", 1, "2026-01-15T00:00:00Z", [56, 93, 120], "it is only a part of a month"),
        ("UTC", 1, None, [31, 56, 93], "2026-04-01T00:00:00Z to 2026-04-30T22:00:00Z is left out"),
        (None, 1, None, [31, 56, 93], "2025-12-31T23:00:00Z to 2026-01-01T00:00:00Z is left out"),
        ("America/New_York", 1, None, [31, 56, 93], "2026-04-01T04:00:00Z to 2026-04-30T22:00:00Z"),
    ):
        asked = {"kind": "bin", "months": months} | ({"timezone": zone} if zone else {})
        found = await api.json("series", **asked, **({"start": start} if start else {}))
        assert [round(value) for value in found["value"]] == values, (zone, months)
        assert left_out in found["note"]
        assert ("left out" in found["note"]) == bool(left_out)
        assert (found["months"], found["days"], found["timezone"]) == (months, None, zone or "UTC")
    text = (await api.get("series", kind="bin", months=1, timezone="Europe/Paris", format="csv")).text
    assert [line.split(",")[:2] for line in text.splitlines()[1:]][2:] == [
        ["2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"],
        ["2026-03-31T22:00:00Z", "2026-04-30T22:00:00Z"],
    ]
    slices = await api.json("preview", epsilon=0.5, months=1, timezone="UTC")
    assert len(slices["start"]) == 5
    assert slices["note"].startswith("The first and the last slice are each shorter")


@with_api(OF_2026[: 31 * 24], epoch_bins=1_024, first_bin=YEAR_END, epsilon=EXACT)
async def test_weeks_begin_on_the_chosen_day(api: Api) -> None:
    for weekday, first in (("monday", "2026-01-05"), ("sunday", "2026-01-04"), ("saturday", "2026-01-03")):
        asked = {"kind": "bin", "days": 7, "timezone": "Europe/Paris", "week_start": weekday}
        found = await api.json("series", **asked)
        begins = datetime.fromtimestamp(found["start"][0], ZoneInfo("Europe/Paris"))
        assert (begins.date().isoformat(), begins.hour) == (first, 0)
        assert [round(value) for value in found["value"]] == [7] * len(found["value"])
