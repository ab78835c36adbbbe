"""A condition that cannot be read is refused in one line: where, what, remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_app.config import ConfigError, load

CONFIG = """\
streams:
  clicks:
    source: {{file: clicks.ndjson}}
    time: {{field: at, format: iso8601, bin: 1h, grace: 0s, epoch: 2d}}
    privacy: {{epsilon: 1.0}}
    where: {where}
"""


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("{}", "where is empty; name a field, for example {country: FR}"),
        ("{country: }", "where.country None: names no value; write a word, a number or a list"),
        ("{country: []}", "where.country []: must be a value or a list of 1 to 1000 values"),
        ("{country: {equals: FR}}", "where.country.equals is no test of a field; known are min, above,"),
        ("{field: amount, min: 1}", "where.field and min would be two fields of the events; for a test of"),
        (
            "{field: amount, min: 1}",
            "amount write {amount: {min: 1}}; if fields have these names write field",
        ),
        ("{field: a, min: 1, max: 2}", "for a test of a write {a: {min: 1, max: 2}};"),
        ("{field: country, present: true}", "for a test of country write {country: {present: true}};"),
        (
            "{field: country, in: [FR, DE]}",
            "for a test of country write {country: FR} or {country: [FR, DE]};",
        ),
        ("{status: 200, not: {field: country, is: FR}}", "where.not.field and is would be two fields"),
        ("{country: {equals: FR}}", "for an equal value write {country: FR}, for one of several {country: ["),
        ("{any: {country: FR}}", "where.any must be a list of mappings, for example [{country: FR},"),
        ("{amount: {min: 5, max: 1}}", "where.amount.max leaves no number beside min; move one of them"),
        ("{amount: {min: 1, above: 2}}", "where.amount.above is a second end beside min; take one of them"),
    ],
)
def test_condition_that_cannot_be_read_is_refused_with_a_remedy(
    tmp_path: Path, where: str, line: str
) -> None:
    config = tmp_path / "app.yaml"
    config.write_text(CONFIG.format(where=where))
    with pytest.raises(ConfigError) as refusal:
        load(config)
    said = str(refusal.value)
    assert "app.yaml:6: streams.clicks.where" in said
    assert line in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "where",
    ["{field: [amount], min: 1}", "{all: [{field: amount}, {min: 1}]}", "{field: amount}", "{min: 1}"],
)
def test_fields_that_are_named_like_tests_can_be_compared(tmp_path: Path, where: str) -> None:
    config = tmp_path / "app.yaml"
    config.write_text(CONFIG.format(where=where))
    [stream] = load(config).streams
    tests = {"field is amount": "field: " in where or "[amount]" in where, "min is 1": "min" in where}
    assert stream.declared.where is not None
    for said, wanted in tests.items():
        assert (said in str(stream.declared.where)) is wanted
