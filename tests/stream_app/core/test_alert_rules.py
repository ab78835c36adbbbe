"""The rule language: what it reads, and where it points when it cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.alerts.rules import Condition, RuleError, parse_condition

HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("count(clicks) > 5", Condition("count", "clicks", None, ">", 5.0)),
        ("sum(clicks,24h)<=-1.5e2", Condition("sum", "clicks", 24 * HOUR_US, "<=", -150.0)),
        ("  rate( a-b_c , 1h30m ) >= .5 / s ", Condition("rate", "a-b_c", 5_400_000_000, ">=", 0.5, 10**6)),
        ("no_data(clicks, 1w)", Condition("no_data", "clicks", 168 * HOUR_US)),
        ("sum(24h, 24h) < 3", Condition("sum", "24h", 24 * HOUR_US, "<", 3.0)),
        ("sum(2013, 2h) < 3", Condition("sum", "2013", 2 * HOUR_US, "<", 3.0)),
    ],
)
def test_conditions_are_read(text: str, condition: Condition) -> None:
    assert parse_condition(text) == condition


@pytest.mark.parametrize(
    ("text", "at", "word"),
    [
        ("", 1, "count, sum, rate or no_data"),
        ("total(clicks) > 5", 1, "is not known"),
        ("quantile(clicks, 24h) > 5", 1, "not built yet"),
        ("count(clicks, 24h) > 5", 13, '")"'),
        ("count clicks > 5", 7, '"("'),
        ("sum(clicks) > 5", 11, '","'),
        ("sum(clicks, 24) > 5", 13, "length"),
        ("sum(clicks, 0h) > 5", 13, "longer than zero"),
        ("sum(clicks, 1h) = 5", 17, "comparison"),
        ("sum(clicks, 1h) > many", 19, "number"),
        ("sum(clicks, 1h) > 5/h", 20, "ends before"),
        ("rate(clicks, 1h) > 5", 21, "unit"),
        ("rate(clicks, 1h) > 5/y", 22, "s, m, h, d or w"),
        ("no_data(clicks, 1h) > 5", 21, "ends before"),
        ("count(Clicks) > 5", 7, "name of a stream"),
    ],
)
def test_an_error_points_at_its_place(text: str, at: int, word: str) -> None:
    with pytest.raises(RuleError) as refusal:
        parse_condition(text)
    assert str(refusal.value).startswith(f"character {at}: ")
    assert word in str(refusal.value)


@given(st.text(max_size=40) | st.text("countsumrate()<>=,/.0123456789hd _-", max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    refusal = ""
    try:
        parse_condition(text)
    except RuleError as error:
        refusal = str(error)
    assert not refusal or refusal.startswith("character ")
    assert "\n" not in refusal


def test_a_rate_counts_events_in_its_window() -> None:
    condition = parse_condition("rate(clicks, 6h) > 40/h")
    assert condition.events(40.0) == 240.0
    assert parse_condition("sum(clicks, 6h) > 40").events(40.0) == 40.0
