"""Series and slices over calendar days of a reader's time zone are exact sums of hourly bins."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.stream_app.api.client import EXACT, Api, with_api
from tests.stream_app.published import FIRST_BIN

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
    assert "2013-03-28T00:00:00Z to 2013-03-28T23:00:00Z is left out: its bins fill no group." in note
    assert note.count("left out") == 2
    for bins, times in ((10, 1), (len(COUNTS), 0), (len(COUNTS) + 1, 1), (1, 0)):
        assert (await api.json("series", kind="bin", step=bins))["note"].count("left out") == times, bins
    for query in ({"kind": "running"}, {"kind": "window", "window": 3}):
        assert "left out" not in (await api.json("series", step=10, **query))["note"]


@with_api(COUNTS, epoch_bins=256, first_bin=MARCH_28)
async def test_slices_in_days_cover_the_range(api: Api) -> None:
    found = await api.json("preview", epsilon=0.5, days=1, timezone="Europe/Paris")
    assert found["start"][0] == MARCH_28 * 3600
    assert found["end"][-1] == (MARCH_28 + len(COUNTS)) * 3600
    assert len(found["start"]) == 8
    assert found["note"].startswith("The last slice is shorter than the others.")


@with_api(COUNTS, epoch_bins=256, first_bin=MARCH_28)
async def test_days_that_cannot_be_counted_are_refused_with_remedy(api: Api) -> None:
    for query, line in (
        ({"kind": "bin", "days": 1, "timezone": "Asia/Kolkata"}, "begins inside a bin"),
        ({"kind": "bin", "days": 1, "timezone": "Mars"}, "is not a time zone"),
        ({"kind": "bin", "timezone": "Europe/Paris"}, "add days=1"),
        ({"kind": "running", "days": 1}, "need kind=bin"),
        ({"kind": "bin", "days": 1, "step": 2}, "need kind=bin and no step"),
    ):
        refused = await api.get("series", **query)
        assert refused.status_code in (400, 422), query
        assert line in refused.json()["error"]
