"""Event times against Python's own arithmetic, one value at a time."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.incoming import Reason
from stream_app.sources.decode import CsvDecoder, NdjsonDecoder, TimeField
from stream_app.sources.times import TimeFormat, times_us, why_no_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
UNIT = {"s": Fraction(1_000_000), "ms": Fraction(1000), "us": Fraction(1), "ns": Fraction(1, 1000)}


def microseconds(moment: datetime) -> int | None:
    """Return the instant in microseconds; None if it is outside the accepted calendar."""
    try:
        inside = FIRST <= moment <= LAST
    except OverflowError:
        return None
    return (moment - EPOCH) // timedelta(microseconds=1) if inside else None


def read(values: list[Any], format: TimeFormat) -> list[int | None]:
    """Return the times of some values; None for a value that is no time."""
    times, good = times_us(values, format)
    assert times.dtype == np.int64
    return [time if is_time else None for time, is_time in zip(times.tolist(), good.tolist(), strict=True)]


def day_and_form(at: datetime, form: str) -> str:
    """Return the day of a time in a form of ISO 8601, with strftime's own words."""
    week = "{:04}-W{:02}-{}".format(*at.isocalendar())
    written = {"week": week, "ordinal": f"{at.year:04}-{at:%j}", "calendar": f"{at.year:04}-{at:%m-%d}"}
    return written[form.removesuffix(" basic")].replace("-", "" if form.endswith(" basic") else "-")


@st.composite
def written(draw: st.DrawFn) -> tuple[str, int | None]:
    """Draw a text of ISO 8601 and its time, which is decided before it is written."""
    offset_min = draw(st.integers(-1439, 1439))
    at = draw(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)))  # noqa: DTZ001  # a local time
    digits = draw(st.integers(1, 9))
    nanoseconds = draw(st.integers(0, 10**digits - 1))
    shown, minutes = draw(
        st.sampled_from(
            [
                ("%H", 60 * at.hour),
                ("%H:%M", at.hour * 60 + at.minute),
                ("%H:%M:%S", None),
                ("24:00:00", 1440),
            ]
        )
    )
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    local = at.replace(microsecond=0) if minutes is None else midnight + timedelta(minutes=minutes)
    text = at.strftime(shown)
    us = 0
    if minutes is None and draw(st.booleans()):
        text += draw(st.sampled_from(".,")) + f"{nanoseconds:0{digits}}"
        us = nanoseconds * 10**6 // 10**digits
    if draw(st.booleans()):
        text = text.replace(":", "")
    sign = "+" if offset_min >= 0 else draw(st.sampled_from(["-", "\u2212"]))
    between = draw(st.sampled_from(["", ":"]))
    offset = f"{sign}{abs(offset_min) // 60:02}{between}{abs(offset_min) % 60:02}"
    if not offset_min:
        offset = draw(st.sampled_from([offset, "Z", "z", " UTC", " Z", "+0000 UTC"]))
    forms = ["calendar", "calendar basic", "ordinal", "ordinal basic", "week", "week basic"]
    day = day_and_form(at, draw(st.sampled_from(forms)))
    whole = day + draw(st.sampled_from("Tt ")) + text + offset
    return whole, microseconds(
        (local - timedelta(minutes=offset_min)).replace(tzinfo=UTC) + timedelta(0, 0, us)
    )


@st.composite
def spoilt(draw: st.DrawFn) -> str:
    """Draw the text of a time with one character replaced. It is often invalid, sometimes another time."""
    text = draw(written())[0]
    at = draw(st.integers(0, len(text) - 1))
    letter = draw(st.sampled_from("0123456789-+:.TtZz W\0\u0663"))
    return text[:at] + letter + text[at + 1 :]


@given(st.lists(written(), max_size=8))
def test_each_form_is_the_time_from_which_it_was_written(times: list[tuple[str, int | None]]) -> None:
    assert read([text for text, _ in times], "iso8601") == [us for _, us in times]


@given(spoilt())
def test_a_spoilt_text_is_no_time_or_what_the_standard_library_reads(text: str) -> None:
    """The standard library reads fewer forms, and some texts wrongly: tests with examples have these."""
    [found] = read([text], "iso8601")
    try:
        moment = datetime.fromisoformat(text.strip().upper())
    except ValueError:
        return
    if found is not None and moment.tzinfo is not None:
        assert found == microseconds(moment)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2013-01-01t00:00:00z", 0),
        ("2013-01-01T00:00:00z", 0),
        ("2013-01-01 00:00:00Z", 0),
        (" 2013-01-01T00:00:00Z", 0),
        ("2013-01-01T00:00:00Z\t ", 0),
        ("2013-01-01T00:00:00Z" + " " * 60, 0),
        ("2013-01-01T00:00:00.000000000Z", 0),
        ("2013-01-01T00:00:00-00:00", 0),
        ("2013-01-01T02:00:00+02:00", 0),
        ("2013-01-01 00:00:00+00", 0),
        ("2013-01-01 00:00:00 +0000", 0),
        ("2013-01-01 00:00:00 UTC", 0),
        ("2013-01-01 00:00:00.5 UTC", 0.5),
        ("20130101T000000Z", 0),
        ("2013-01-01T00:00:00.000+0000", 0),
        ("2013-01-01T00:00:00,000Z", 0),
        ("2013-01-01T01:00:00+01:00[Europe/Paris]", 0),
        ("2013-01-01T00:00:00Z[UTC][u-ca=gregory]", 0),
        ("2012-12-31T23:59:60Z", -1),
        ("2013-01-01T05:29:60+05:30", -1),
        ("2012-12-31T23:59:60.25Z", -0.75),
        ("2013-01-01T03:59:60Z", 4 * 3600 - 1),
        ("2012-12-31T24:00:00Z", 0),
        ("2012-12-31T24:00Z", 0),
        ("2012-12-31T24:00:00.000+00:00", 0),
        ("2013-001T00:00:00Z", 0),
        ("2012366T24Z", 0),
        ("2013-01-01T00:00:00\u221205:00", 5 * 3600),
        ("2013-01-01 00:00:00 +0000 UTC", 0),
        ("2013-01-01 01:00:00.000000001 +0100 CET m=+0.000012345", 0),
        ("2013-01-01 03:00:00 +0300 +03", 0),
        ("2013-W01-1T24:00Z", 0),
        ("2013-W01-2 00Z", 0),
        ("2013-01-01T00:30.5Z", 1830),
        ("2013-01-01T00,25Z", 900),
        ("2013-01-01T00:00:00+00:09:21", -561),
        ("\u00a02013-01-01T00:00:00Z\u00a0", 0),
    ],
)
def test_forms_of_one_time(text: str, seconds: float) -> None:
    assert read([text], "iso8601") == [1_356_998_400_000_000 + int(seconds * 1_000_000)]


@pytest.mark.parametrize(
    ("value", "format", "expected"),
    [
        ("1772323200", "s", 1_772_323_200_000_000),
        (" 1772323200 ", "s", 1_772_323_200_000_000),
        ("1772323200.5", "s", 1_772_323_200_500_000),
        ("1772323199.9999998", "s", 1_772_323_199_999_999),
        (1772323199.9999998, "s", 1_772_323_199_999_999),
        (1772323199999999.5, "us", 1_772_323_199_999_999),
        ("1.7723232e9", "s", 1_772_323_200_000_000),
        ("1.7723232E+12", "ms", 1_772_323_200_000_000),
        ("1772323200000", "ms", 1_772_323_200_000_000),
        ("+1772323200000", "ms", 1_772_323_200_000_000),
        ("1772323200000.0", "ms", 1_772_323_200_000_000),
        ("1772323200000000", "us", 1_772_323_200_000_000),
        ("1772323200000000999", "ns", 1_772_323_200_000_000),
        ("-0", "s", 0),
        ("-1", "s", -1_000_000),
        ("1_772_323_200", "s", None),
        ("", "s", None),
        ("2026-03-01T00:00:00Z", "s", None),
        ("1e400", "s", None),
        ("9" * 41, "ns", None),
        (True, "s", None),
        ([1], "s", None),
    ],
)
def test_texts_of_numbers_are_the_numbers(value: Any, format: TimeFormat, expected: int | None) -> None:
    assert read([value, 5, value], format) == [expected, read([5], format)[0], expected]


@pytest.mark.parametrize(
    ("value", "zone", "reason"),
    [
        ("2013-01-01T00:00:00", None, Reason.LOCAL_TIME),
        (" 2013-01-01 00:00 ", None, Reason.LOCAL_TIME),
        ("2013-01-01", None, Reason.LOCAL_TIME),
        ("2013-01-01 00:00:00,123", None, Reason.LOCAL_TIME),
        ("2013-01-01T00:00:00[Europe/Paris]", None, Reason.LOCAL_TIME),
        ("2013-01-01T00:00:00Z]", None, Reason.BAD_TIME),
        ("0001-01-01T00:00:00", "Europe/Paris", Reason.BAD_TIME),
        ("1357016400", None, Reason.BAD_TIME),
        ("yesterday", None, Reason.BAD_TIME),
        (1357016400, None, Reason.BAD_TIME),
        (None, None, Reason.NULL),
        (Reason.MISSING_FIELD, None, Reason.MISSING_FIELD),
    ],
)
def test_each_value_that_is_no_time_has_its_reason(value: Any, zone: str | None, reason: Reason) -> None:
    assert not times_us([value], "iso8601", zone)[1].any()
    assert why_no_time(value, "iso8601", zone) is reason


@pytest.mark.parametrize(
    "text",
    [
        "2013-02-29T00:00:00Z",
        "2013-00-10T00:00:00Z",
        "2013-13-10T00:00:00Z",
        "2013-01-32T00:00:00Z",
        "2013-01-01T24:00:01Z",
        "2013-01-01T24:00:00.5Z",
        "2013-01-01T25:00:00Z",
        "2013-01-01T00:60:00Z",
        "2013-01-01T23:60Z",
        "2013-01-01T00:00:61Z",
        "2013-01-01T05:58:59+05:60",
        "2013-01-01T00:00:00+24:00",
        "2013-01-01512:00:00Z",
        "2013-01-01x12:00:00Z",
        "2013-01-01+05:00",
        "2013-01-01Z",
        "2013-366T00:00:00Z",
        "2013-000T00:00:00Z",
        "2013-W53-1T00:00:00Z",
        "2013-W01-8T00:00:00Z",
        "2013-0101T00:00:00Z",
        "2013-01-01T00:0000Z",
        "2013-01-01T00:00:00 CET",
        "2013-01-01T00:00:00Z+01:00",
        "0000-01-01T00:00:00Z",
        "2013-01-01T00:00:00",
        "2013-01-01",
        "1357016400",
        "",
        "2013-01-01T00:00:00Z\0",
        "2013-01-01T00:00:00Z" + "0" * 60,
    ],
)
def test_texts_that_are_not_times_are_refused(text: str) -> None:
    assert read([text, "2013-01-01T00:00:00Z"], "iso8601") == [None, 1_356_998_400_000_000]


@given(st.lists(st.integers(-(2**70), 2**70) | st.integers(-(10**16), 10**16)), st.sampled_from(list(UNIT)))
def test_integers_are_exact(values: list[int], format: TimeFormat) -> None:
    expected = [math.floor(value * UNIT[format]) for value in values]
    bounds = range(
        (FIRST - EPOCH) // timedelta(microseconds=1), (LAST - EPOCH) // timedelta(microseconds=1) + 1
    )
    assert read(values, format) == [us if us in bounds else None for us in expected]


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, 2**63, -(2**64)])
@pytest.mark.parametrize("format", ["s", "ms", "us"])
def test_integers_at_the_edges_of_int64_are_no_time(value: int, format: TimeFormat) -> None:
    assert read([value], format) == [None]


@given(st.lists(st.floats(-1e12, 1e12)), st.sampled_from(["s", "ms"]))
def test_floats_are_rounded_to_the_nearest_microsecond(values: list[float], format: TimeFormat) -> None:
    for value, us in zip(values, read(values, format), strict=True):
        exact = Fraction(value) * UNIT[format]
        if us is not None:
            most = 1 if (us + 1) % 1_000_000 == 0 else Fraction(1, 2)  # not rounded into the next second
            assert abs(us - exact) <= most + abs(exact) / 2**52
        else:
            assert abs(exact) > 62_135_596_000_000_000 * Fraction(99, 100)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_floats_that_are_no_time(value: float) -> None:
    assert read([value, 1.5], "s") == [None, 1_500_000]


@given(
    st.lists(st.integers(-(2**65), 2**65) | st.floats(), min_size=1, max_size=6), st.sampled_from(list(UNIT))
)
def test_a_number_s_time_does_not_depend_on_its_neighbours(values: list[Any], format: TimeFormat) -> None:
    assert read(values, format) == [read([value], format)[0] for value in values]


@given(
    st.lists(
        st.one_of(written().map(lambda one: one[0]), spoilt(), st.text(max_size=45)), min_size=1, max_size=6
    )
)
def test_a_text_s_time_does_not_depend_on_its_neighbours(texts: list[str]) -> None:
    assert read(texts, "iso8601") == [read([text], "iso8601")[0] for text in texts]


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
