"""Calendar days and months over bins are those of Python, and refused where a midnight is inside a bin."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import groupby, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.steps import CalendarStep, check_zone
from stream_app.core.counting.bins import Binning
from stream_app.core.kinds.tables import Span

HOURS = Binning(3_600_000_000)
ZONES = ("UTC", "Europe/Paris", "America/New_York", "America/Havana", "Australia/Sydney", "Pacific/Apia")


def date_of(bin: int, zone: str) -> datetime:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=bin)).astimezone(ZoneInfo(zone))


@given(
    first=st.integers(360_000, 420_000),
    hours=st.integers(1, 400),
    zone=st.sampled_from(ZONES),
    days=st.sampled_from([1, 2, 7]),
    weekday=st.integers(0, 6),
)
def test_groups_are_runs_of_hours_with_one_date(
    first: int, hours: int, zone: str, days: int, weekday: int
) -> None:
    step = CalendarStep(days, "days", zone, weekday)
    found = step.groups(HOURS, Span(first, first + hours), most=500)
    assert (found[0].start, found[-1].stop) == (first, first + hours)
    assert all(one.stop == other.start for one, other in pairwise(found))
    groups = [{_group(date_of(bin, zone), days, weekday) for bin in range(*one)} for one in found]
    assert all(len(one) == 1 for one in groups)
    assert len({day for one in groups for day in one}) == len(found)
    for one in (one for one in found if step.is_whole(HOURS, one)):
        dates = {date_of(bin, zone).date() for bin in range(*one)}
        skipped = zone == "Pacific/Apia" and one.start < 368_135 < one.stop + 24 * days
        assert len(dates) == days or skipped
        assert date_of(one.start, zone).date() != date_of(one.start - 1, zone).date()


def _group(at: datetime, days: int, weekday: int) -> int:
    return (at.toordinal() - date(1970, 1, 5).toordinal() - weekday) // days  # a Monday


@given(
    first=st.integers(360_000, 420_000),
    hours=st.integers(1, 9_000),
    zone=st.sampled_from(ZONES),
    months=st.sampled_from([1, 2, 3, 6, 12, 120]),
)
def test_months_are_runs_of_hours_of_one_month(first: int, hours: int, zone: str, months: int) -> None:
    step, span = CalendarStep(months, "months", zone), Span(first, first + hours)
    found = step.groups(HOURS, span, most=500)
    dates = [date_of(bin, zone) for bin in range(*span)]
    expected = [(at.year * 12 + at.month - 1) // months for at in dates]
    sizes = [len(list(same)) for _, same in groupby(expected)]
    assert [stop - start for start, stop in found] == sizes
    assert (found[0].start, found[-1].stop) == span
    for one in found:
        begins, ends = date_of(one.start, zone), date_of(one.stop, zone)
        edges = [
            at.day == 1 and at.hour == 0 and (at.month - 1) % min(months, 12) == 0 for at in (begins, ends)
        ]
        decades = months < 120 or begins.year % 10 == ends.year % 10 == 0
        assert step.is_whole(HOURS, one) == (all(edges) and decades)


@pytest.mark.parametrize(
    ("months", "zone", "lengths"),
    [
        (1, "Europe/Paris", [31 * 24, 28 * 24, 31 * 24 - 1, 30 * 24]),
        (1, "UTC", [1, 31 * 24, 28 * 24, 31 * 24, 30 * 24 - 2]),  # begins an hour before, in Paris
        (1, "America/New_York", [6, 31 * 24, 28 * 24, 31 * 24 - 1, 30 * 24 - 6]),
        (2, "Europe/Paris", [59 * 24, 61 * 24 - 1]),
        (3, "Europe/Paris", [90 * 24 - 1, 30 * 24]),
        (12, "Europe/Paris", [120 * 24 - 1]),
    ],
)
def test_months_of_2026_have_their_hours(months: int, zone: str, lengths: list[int]) -> None:
    edges = [datetime(*on, tzinfo=ZoneInfo("Europe/Paris")) for on in ((2026, 1, 1), (2026, 5, 1))]
    span = Span(*(int(at.timestamp()) // 3600 for at in edges))
    found = CalendarStep(months, "months", zone).groups(HOURS, span, most=12)
    assert [stop - start for start, stop in found] == lengths


@pytest.mark.parametrize(("month", "day", "hours"), [(3, 31, 23), (10, 27, 25), (7, 1, 24)])
def test_days_on_which_clocks_change_have_23_or_25_hours(month: int, day: int, hours: int) -> None:
    noon = int(datetime(2013, month, day, 12, tzinfo=UTC).timestamp()) // 3600
    found = CalendarStep(1, "days", "Europe/Paris").groups(HOURS, Span(noon - 48, noon + 48), most=10)
    [whole] = [one for one in found if one.start <= noon < one.stop]
    assert whole.stop - whole.start == hours


def test_midnight_inside_a_bin_and_unknown_zone_are_refused_with_remedy() -> None:
    kolkata = CalendarStep(1, "days", "Asia/Kolkata")
    with pytest.raises(
        QueryError, match="day of Asia/Kolkata begins inside a bin, at 2013-01-01T18:30:00Z; leave"
    ):
        kolkata.groups(HOURS, Span(376_944, 377_000), most=10)
    half_hours = Binning(1_800_000_000)
    assert len(kolkata.groups(half_hours, Span(2 * 376_944, 2 * 377_016), most=10)) == 4
    for zone in ("Mars", "../passwd", "/etc/passwd", ""):
        with pytest.raises(QueryError, match="is not a time zone; write one"):
            check_zone(zone)
    for unit, hours, least in (("days", 240, 4), ("months", 24 * 365, 4)):
        step = CalendarStep(1, unit, "UTC")  # type: ignore[arg-type]
        with pytest.raises(QueryError, match=f"at most 3 groups of {unit}; write {least} or more"):
            step.groups(HOURS, Span(0, hours), most=3)
        assert len(step.groups(HOURS, Span(0, hours), most=12)) <= 12
