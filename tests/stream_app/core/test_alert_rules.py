"""The rule language: the conditions that it reads, and the character that each error names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.alerts.conditions import Condition, Reference, RuleError, parse_condition
from stream_app.core.alerts.rules import text_of_key

HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("count(clicks) > 5", Condition("count", "clicks", None, ">", 5.0)),
        ("sum(clicks,24h)<=-1.5e2", Condition("sum", "clicks", 24 * HOUR_US, "<=", -150.0)),
        ("  rate( a-b_c , 1h30m ) >= .5 / s ", Condition("rate", "a-b_c", 5_400_000_000, ">=", 0.5, 10**6)),
        ("count(clicks, 24h) > 5", Condition("sum", "clicks", 24 * HOUR_US, ">", 5.0)),
        (
            "count(clicks, 1h) < .5*count( clicks,2h , 7d ago )",
            Condition("sum", "clicks", HOUR_US, "<", 0.5, reference=Reference(2 * HOUR_US, 168 * HOUR_US)),
        ),
        (
            "total(clicks[not 'FR'], 1h) >= total(clicks[not 'FR'], 1h, 1h ago)",
            Condition(
                *("total", "clicks", HOUR_US, ">=", 1.0),
                keys=("FR",),
                without=True,
                reference=Reference(HOUR_US, HOUR_US),
            ),
        ),
        ("no_data(clicks, 1w)", Condition("no_data", "clicks", 168 * HOUR_US)),
        ("sum(24h, 24h) < 3", Condition("sum", "24h", 24 * HOUR_US, "<", 3.0)),
        ("sum(2013, 2h) < 3", Condition("sum", "2013", 2 * HOUR_US, "<", 3.0)),
        ("count(clicks['FR']) > 5", Condition("count", "clicks", None, ">", 5.0, keys=("FR",))),
        (
            "mean(clicks[not 'FR', 'DE'], 1h) > 5",
            Condition("mean", "clicks", HOUR_US, ">", 5.0, keys=("FR", "DE"), without=True),
        ),
        ("sum(not['not'], 1h) > 5", Condition("sum", "not", HOUR_US, ">", 5.0, keys=("not",))),
        ("sum(clicks[ each ], 1h) > 5", Condition("sum", "clicks", HOUR_US, ">", 5.0, each=True)),
        ("sum(each['each'], 1h) > 5", Condition("sum", "each", HOUR_US, ">", 5.0, keys=("each",))),
        (
            """sum(clicks[ 'a,b', "it's"] , 1h) > 5""",
            Condition("sum", "clicks", HOUR_US, ">", 5.0, keys=("a,b", "it's")),
        ),
        (
            "quantile(clicks, .95, 24h) > -3.5",
            Condition("quantile", "clicks", 24 * HOUR_US, ">", -3.5, level=0.95),
        ),
        (
            "cdf(clicks['FR'], 30, 1h) < 0.9",
            Condition("cdf", "clicks", HOUR_US, "<", 0.9, keys=("FR",), level=30.0),
        ),
        (
            "ks(clicks, 24h, 7d) > 0.1",
            Condition(
                *("ks", "clicks", 24 * HOUR_US, ">", 0.1), reference=Reference(168 * HOUR_US, 24 * HOUR_US)
            ),
        ),
        (
            "ks(clicks, 24h, 12h ago 7d) < 0.1",
            Condition(
                *("ks", "clicks", 24 * HOUR_US, "<", 0.1), reference=Reference(12 * HOUR_US, 168 * HOUR_US)
            ),
        ),
        (
            "ks(clicks, 24h, '1970-01-01T01:00:00Z/1970-01-01T02:00:00Z') > 0.1",
            Condition(
                *("ks", "clicks", 24 * HOUR_US, ">", 0.1),
                reference=Reference(from_us=HOUR_US, to_us=2 * HOUR_US),
            ),
        ),
    ],
)
def test_conditions_are_read(text: str, condition: Condition) -> None:
    assert parse_condition(text) == condition


@pytest.mark.parametrize(
    ("text", "at", "word"),
    [
        ("", 1, "count, sum, rate, total, mean, quantile, cdf, ks or no_data"),
        ("median(clicks) > 5", 1, "is not known"),
        ("sum(clicks, 1h) > 0 * sum(clicks, 1h, 7d ago)", 19, "a factor is above 0"),
        ("sum(clicks, 1h) > 2e6*sum(clicks, 1h, 7d ago)", 19, "at most 1,000,000"),
        ("sum(clicks, 1h) > 2 * count(clicks, 1h, 7d ago)", 23, "its name, stream and keys again"),
        ("sum(clicks, 1h) > 2 * sum(views, 1h, 7d ago)", 23, "its name, stream and keys again"),
        ("sum(clicks['FR'], 1h) > sum(clicks, 1h, 7d ago)", 25, "its name, stream and keys again"),
        ("sum(clicks, 1h) > 2 * sum(clicks, 1h)", 37, "7d ago"),
        ("sum(clicks, 1h) > 2 * sum(clicks, 1h, 7d)", 41, "ago"),
        ("sum(clicks, 2h) > 2 * sum(clicks, 2h, 1h ago)", 39, "before the window begins"),
        ("rate(clicks, 1h) > 2 * rate(clicks, 1h, 7d ago)", 22, "unit"),
        ("count(clicks) > 2 * count(clicks, 1h, 7d ago)", 19, "ends before"),
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
        ("count(clicks[FR]) > 5", 14, "a key in quotes"),
        ("count(clicks[not]) > 5", 17, "a key in quotes"),
        ("count(clicks[not each]) > 5", 18, "a key in quotes"),
        ("count(clicks[not 'FR', 'FR']) > 5", 24, "named twice"),
        ("count(clicks['FR') > 5", 18, '"]"'),
        ("count(clicks['FR', 'FR']) > 5", 20, "named twice"),
        ("no_data(clicks['FR'], 1h)", 15, '","'),
        ("quantile(clicks, 24h) > 5", 18, "a quantile"),
        ("quantile(clicks, 1.5, 24h) > 5", 18, "above 0 and below 1"),
        ("quantile(clicks, 0.5, 24h) >= 5", 28, "write >"),
        ("cdf(clicks, 5, 24h) > 1", 23, "above 0 and below 1"),
        ("ks(clicks, 24h) > 0.1", 15, '","'),
        ("ks(clicks, 24h, 7) > 0.1", 17, "length"),
        ("ks(clicks, 24h, 7d ago) > 0.1", 23, "length"),
        ("ks(clicks, 24h, 'monday/tuesday') > 0.1", 17, "two instants"),
        ("ks(clicks, 24h, '1970-01-01T02:00:00Z/1970-01-01T01:00:00Z') > 0.1", 17, "before it begins"),
    ],
)
def test_error_names_the_character_at_fault(text: str, at: int, word: str) -> None:
    with pytest.raises(RuleError) as refusal:
        parse_condition(text)
    assert str(refusal.value).startswith(f"character {at}: ")
    assert word in str(refusal.value)


@given(st.text(max_size=40) | st.text("countsumrateksqilcdf()[]'\"<>=,/.0123456789hd _-", max_size=40))
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


@given(st.text().filter(lambda key: not {"'", '"'} <= set(key)))
def test_condition_on_each_key_is_written_for_one_key(key: str) -> None:
    text = "quantile( each[each ], 0.5, 1h) > 5"
    own = parse_condition(text_of_key(text, parse_condition(text), key))
    past = "sum(each[each], 1h) > 2 * sum(each[ each ], 1h, 1d ago)"
    named = parse_condition(text_of_key(past, parse_condition(past), key))
    assert (named.keys, named.each) == ((key,), False)
    assert own == Condition("quantile", "each", HOUR_US, ">", 5.0, keys=(key,), level=0.5)
