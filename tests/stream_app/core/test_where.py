"""Conditions on records: against a record-by-record reading in exact arithmetic, in JSON and CSV."""

from __future__ import annotations

import json
import operator
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dphist.privacy import is_plain
from stream_app.core.counting.where import AllOf, AnyOf, Condition, Not, OneOf, Present, Within
from stream_app.sources.decode import CsvDecoder, NdjsonDecoder, TimeField

FIELDS = ("a", "b.c")
WORDS = st.sampled_from(["0", "1", "-1", "1.0", "1.5", "2e0", "01", "true", "false", "FR", "", "1e999", "é"])
# Numbers that doubles hold exactly, so that both sides mean the same number.
ENDS = st.integers(-8, 8).map(lambda eighths: Fraction(eighths, 4))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-12, 12).map(lambda eighths: eighths / 8),
    WORDS,
    st.just([1]),
    st.just({"d": 1}),
    st.just(10**30),
)
ABSENT = object()
TESTS = st.one_of(
    st.builds(
        OneOf, st.sampled_from(FIELDS), st.lists(WORDS.filter(bool), min_size=1, max_size=3).map(tuple)
    ),
    st.builds(
        Within, st.sampled_from(FIELDS), **{end: st.none() | ENDS for end in ("min", "above", "max", "below")}
    ),
    st.builds(Present, st.sampled_from(FIELDS)),
)
CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    TESTS,
    lambda parts: st.one_of(
        st.builds(AllOf, st.lists(parts, min_size=1, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(parts, min_size=1, max_size=3).map(tuple)),
        st.builds(Not, parts),
    ),
    max_leaves=6,
)


def expected(condition: Condition, record: dict[str, Any]) -> bool:
    """Return whether a record matches, value by value and in fractions."""
    match condition:
        case AllOf(parts):
            return all(expected(part, record) for part in parts)
        case AnyOf(parts):
            return any(expected(part, record) for part in parts)
        case Not(part):
            return not expected(part, record)
    value = record.get("a") if condition.field == "a" else (record.get("b") or {}).get("c")
    match condition:
        case Present():
            return value is not None
        case OneOf(_, values):
            return any(is_equal(value, text) for text in values)
        case Within(_, least, above, most, below):
            number = exactly(value)
            compare = ((operator.ge, least), (operator.gt, above), (operator.le, most), (operator.lt, below))
            return number is not None and all(end is None or holds(number, end) for holds, end in compare)
    raise AssertionError(condition)


def is_equal(value: Any, text: str) -> bool:
    if isinstance(value, bool):
        return text == str(value).lower()
    if isinstance(value, str):
        return value == text
    return isinstance(value, int | float) and is_plain(text) and Fraction(text) == Fraction(value)


def exactly(value: Any) -> Fraction | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float("inf") if value == "1e999" else Fraction(value)
    except ValueError:
        return None


RECORDS = st.lists(
    st.tuples(st.one_of(st.just(ABSENT), VALUES), st.one_of(st.just(ABSENT), VALUES)), min_size=1, max_size=8
)


@given(CONDITIONS, RECORDS)
@example(OneOf("a", ("1",)), [(True, ABSENT), (1, ABSENT)])
@example(Not(Within("a", below=Fraction(1))), [(ABSENT, ABSENT), ("x", 1), (1, 1)])
def test_every_record_of_json_matches_by_its_own_values(
    condition: Condition, fields: list[tuple[Any, Any]]
) -> None:
    records = [
        {"t": 1} | ({} if a is ABSENT else {"a": a}) | ({} if c is ABSENT else {"b": {"c": c}})
        for a, c in fields
    ]
    decoder = NdjsonDecoder(TimeField("t", "s"), FIELDS)
    columns = decoder.decode([json.dumps(record).encode() for record in records]).columns
    assert condition.matches(columns).tolist() == [expected(condition, record) for record in records]


@given(CONDITIONS, st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=8))
def test_every_record_of_csv_matches_by_its_own_texts(
    condition: Condition, texts: list[tuple[str, str]]
) -> None:
    decoder = CsvDecoder(["t", *FIELDS], TimeField("t", "s"), FIELDS)
    columns = decoder.decode([f"1,{a},{c}".encode() for a, c in texts]).columns
    records = [{"a": a or None, "b": {"c": c or None}} for a, c in texts]
    assert condition.matches(columns).tolist() == [expected(condition, record) for record in records]


@given(CONDITIONS)
def test_a_stored_condition_is_read_back_and_names_its_fields(condition: Condition) -> None:
    text = json.dumps(msgspec.to_builtins(condition, enc_hook=str))
    assert msgspec.convert(json.loads(text), Condition, dec_hook=lambda kind, value: kind(value)) == condition
    assert set(condition.fields) == {field for field in FIELDS if f'"{field}"' in text}


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (OneOf("status", ("200", "204")), "status is one of 200, 204"),
        (
            Within("amount", min=Fraction(1, 10), below=Fraction(10**15)),
            "amount is at least 0.1 and below 1000000000000000",
        ),
        (
            AllOf((Present("user"), AnyOf((OneOf("country", ("FR",)), Not(OneOf("bot", ("true",))))))),
            "user is present and (country is FR or not (bot is true))",
        ),
    ],
)
def test_a_condition_has_words_for_readers(condition: Condition, words: str) -> None:
    assert str(condition) == words
