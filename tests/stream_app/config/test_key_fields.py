"""The section ``keys`` with several fields: what it declares, what it plans, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import Settings, load_text
from stream_app.config.plans import planned
from stream_app.core.counting.keys import KeyField, KeyList
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
