"""The section ``keys`` with several fields: what it declares, what it plans, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import ConfigError, Settings, load_text
from stream_app.config.plans import planned
from stream_app.core.counting.cells import KeyField, KeyList
from stream_app.core.strategy import Strategy

FIELDS = "fields: [geo.country, device], list: {geo.country: [FR, DE], device: [mobile, 7, NO]}"

MANY = [f"v{i}" for i in range(1025)]


def read(keys: str, rest: str = "", top: str = "") -> Settings:
    text = f"""
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 0s, epoch: 1d}}
    privacy: {{epsilon: 1.0{", unit: {user: who, max_events: 3}" if "user" in rest else ""}}}
    keys: {{{keys}}}
    {rest if "user" not in rest else ""}
{top}"""
    return load_text(text, Path("/app/app.yaml"), {})


def test_lists_and_others_of_each_field_are_declared() -> None:
    declared = read(FIELDS).streams[0].declared
    assert declared.keys == KeyList(
        fields=(
            KeyField("geo.country", ("FR", "DE"), True),
            KeyField("device", ("mobile", "7", "NO"), True),
        ),
        total=False,
    )
    assert declared.cells.width == 12
    assert declared.cell_fields == ("geo.country", "device")
    [some] = read(f"{FIELDS}, other: {{device: false}}").streams
    assert [part.other for part in some.declared.cells.keys.parts] == [True, False]  # type: ignore[union-attr]
    [none] = read(f"{FIELDS}, other: false, total: true").streams
    assert none.declared.cells.width == 6
    assert none.declared.keys is not None
    assert none.declared.keys.total


@pytest.mark.parametrize(
    "rest",
    [
        "value: {field: delay, min: 0, max: 60, buckets: 4}",
        "value: {field: delay, min: 0, max: 60, buckets: 4, mode: window, window: 1d}",
        "sum: {field: amount, min: 0, max: 5, unit: 0.01}",
        "where: {device: mobile}",
        "tree: {release: causal}",
        "user",
    ],
)
def test_fields_stand_beside_other_sections_and_the_strategy_is_read_back(rest: str) -> None:
    strategy = planned(read(FIELDS, rest).streams[0])
    assert Strategy.from_json(strategy.to_json()).to_json() == strategy.to_json()
    assert b'"fields":[{"field":"geo.country","list":["FR","DE"],"other":true},' in strategy.to_json()


def test_windows_of_combinations_are_planned() -> None:
    strategy = planned(read(f"{FIELDS}, mode: window, window: 1d").streams[0])
    assert strategy.kind.windows is not None
    assert strategy.kind.windows.buckets == 12


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("fields: [a], list: {a: [x]}", "keys.fields ['a']: must be a list of two or more fields"),
        ("fields: [a, a], list: {a: [x]}", "keys.fields ['a', 'a']: holds a field twice; take one out"),
        ("fields: [a, b], field: c, list: {a: [x], b: [y]}", "keys.field does not stand beside keys.fields"),
        ("fields: [a, b], list: {a: [x]}", "keys.list.b is missing; add it"),
        ("fields: [a, b], list: {a: [x], b: [y], c: [z]}", "keys.list.c is not a known key"),
        ("fields: [a, b], list: [x, y]", "keys.list ['x', 'y']: must hold keys with values, for example {co"),
        ("fields: [a, b], list: {a: [x], b: [other]}", 'keys.list.b holds "other"'),
        ("fields: [a, b], list: {a: [x], b: [y, y]}", "keys.list.b ['y', 'y']: holds a key twice"),
        ("fields: [a, b], list: {a: [x], b: [y]}, other: {c: true}", "keys.other.c is not a known key"),
        ("fields: [a, at], list: {a: [x], at: [y]}", 'keys.fields "at" is where time.field reads'),
        (
            "fields: [a, b], list: {a: [x], b: [y]}, other: false, total: true",
            "keys.total is not needed for one key",
        ),
        (
            f"fields: [a, b], list: {{a: {MANY[:-2]}, b: {MANY}}}".replace("'", ""),
            "keys.list makes 1,050,624 combinations, more than 1048576 keys; count fewer keys separately",
        ),
    ],
)
def test_wrong_fields_are_refused_in_one_line(keys: str, line: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(keys)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


def rules(when: str) -> Settings:
    return read(FIELDS, top=f'alerts: {{rules: {{busy: {{when: "{when}"}}}}}}')


def test_rules_take_cells_patterns_and_each() -> None:
    assert rules("sum(clicks['FR/*', 'DE/mobile'], 1h) > 5").alerts.rules[0].condition.keys == (
        "FR/*",
        "DE/mobile",
    )
    found = rules("sum(clicks[each], 1h) > 5").alerts.rules
    assert len(found) == 12
    assert found[1].name == "busy[FR/7]"
    assert found[1].labels == {"key": "FR/7", "geo_country": "FR", "device": "7"}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("'FR'", "'FR' is not on the list of clicks: FR/mobile, FR/7,"),
        ("'FR/tv'", "FR/*"),
        ("'FR/*', '*/7'", "'*/7' has keys that 'FR/*' has too; take one out"),
    ],
)
def test_wrong_keys_of_rules_are_refused_in_one_line(keys: str, line: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        rules(f"sum(clicks[{keys}], 1h) > 5")
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)
