"""Calendar days over bins are those of Python's calendar, and refused where a midnight is inside a bin."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.local_days import groups_of_days, whole_groups
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
)
def test_groups_are_runs_of_hours_with_one_date(first: int, hours: int, zone: str, days: int) -> None:
    found = groups_of_days(HOURS, Span(first, first + hours), days, zone, most=500)
    assert (found[0].start, found[-1].stop) == (first, first + hours)
    assert all(one.stop == other.start for one, other in pairwise(found))
    groups = [{_group(date_of(bin, zone), days) for bin in range(*one)} for one in found]
    assert all(len(one) == 1 for one in groups)
    assert len({day for one in groups for day in one}) == len(found)
    for one in whole_groups(HOURS, found, days, zone):
        dates = {date_of(bin, zone).date() for bin in range(*one)}
        skipped = zone == "Pacific/Apia" and one.start < 368_135 < one.stop + 24 * days
        assert len(dates) == days or skipped
        assert date_of(one.start, zone).date() != date_of(one.start - 1, zone).date()


def _group(at: datetime, days: int) -> int:
    return (at.toordinal() - date(1970, 1, 5).toordinal()) // days  # a Monday


@pytest.mark.parametrize(("month", "day", "hours"), [(3, 31, 23), (10, 27, 25), (7, 1, 24)])
def test_days_on_which_clocks_change_have_23_or_25_hours(month: int, day: int, hours: int) -> None:
    noon = int(datetime(2013, month, day, 12, tzinfo=UTC).timestamp()) // 3600
    found = groups_of_days(HOURS, Span(noon - 48, noon + 48), 1, "Europe/Paris", most=10)
    [whole] = [one for one in found if one.start <= noon < one.stop]
    assert whole.stop - whole.start == hours


def test_midnight_inside_a_bin_and_unknown_zone_are_refused_with_remedy() -> None:
    with pytest.raises(
        QueryError, match="day of Asia/Kolkata begins inside a bin, at 2012-12-31T18:30:00Z; leave"
    ):
        groups_of_days(HOURS, Span(376_944, 377_000), 1, "Asia/Kolkata", most=10)
    half_hours = Binning(1_800_000_000)
    assert len(groups_of_days(half_hours, Span(2 * 376_944, 2 * 377_016), 1, "Asia/Kolkata", most=10)) == 4
    for zone in ("Mars", "../passwd", "/etc/passwd", ""):
        with pytest.raises(QueryError, match="is not a time zone; write one"):
            groups_of_days(HOURS, Span(0, 24), 1, zone, most=10)
    with pytest.raises(QueryError, match="at most 3 groups of days; write 4 or more"):
        groups_of_days(HOURS, Span(0, 240), 1, "UTC", most=3)
