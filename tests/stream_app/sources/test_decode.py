"""The decoders give the same as Python's json and csv modules, record by record."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import time
from codecs import BOM_UTF8
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_app.core.incoming import Reason
from stream_app.core.json_objects import nested_value
from stream_app.ports import OperatorError
from stream_app.sources import decode
from stream_app.sources.decode import CsvDecoder, Decoded, Decoder, NdjsonDecoder, TimeField
from stream_app.sources.json_fields import readers

AT = TimeField("at", "us")
NESTED = TimeField("user.seen", "us")

_1970 = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US = (datetime(1, 1, 3, tzinfo=UTC) - _1970) // timedelta(microseconds=1)
LAST_US = (datetime(9999, 12, 29, tzinfo=UTC) - _1970) // timedelta(microseconds=1)

times = st.integers(-(10**16), 10**16)
scalars = st.none() | st.booleans() | times | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["at", "seen", "x", "x.at", "id"]), inner)
    ),
    max_leaves=4,
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "at": times | values,
        "user": values | st.fixed_dictionaries({}, optional={"seen": times | values, "id": values}),
        "user.seen": times | values,
        "user.x": values,
        "user.x.at": values,
        "other": values,
    },
)
broken = st.sampled_from(
    [b"", b"{", b"[]", b"7", b"null", b'{"at": 1} {"at": 2}', b'{"at": 01}', b"\xff", b"[" * 10**5]
)
texts = objects.map(lambda o: json.dumps(o).encode())
records = st.lists(st.one_of(texts, texts.map(BOM_UTF8.__add__), broken), max_size=8)


def outcomes(decoder: Decoder, records: list[bytes], path: str) -> list[int | Reason]:
    """Return the time of every record, or why the record was refused."""
    decoded = decoder.decode(records)
    found: dict[int, int | Reason] = dict(decoded.refused)
    for index, time_us in zip(decoded.kept.tolist(), decoded.columns[path].tolist(), strict=True):
        assert index not in found
        found[index] = time_us
    assert sorted(found) == list(range(len(records)))
    return [found[index] for index in range(len(records))]


def json_oracle(record: bytes, path: str) -> int | Reason:
    """Decode a record with the json module, and look up the path in it."""
    try:
        whole = json.loads(record, parse_constant=lambda name: None if name == "NaN" else float(name))
    except (ValueError, RecursionError):
        return Reason.UNDECODABLE
    if not isinstance(whole, dict):
        return Reason.UNDECODABLE
    value = nested_value(whole, path)
    if isinstance(value, Reason):
        return value
    if value is None:
        return Reason.NULL
    if isinstance(value, str) and re.fullmatch(
        r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*", value, re.A | re.I
    ):
        value = float(value) if {*value.lower()} & {*".e"} else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Reason.BAD_TIME
    return round(value) if FIRST_US <= round(value) <= LAST_US else Reason.BAD_TIME


@given(records)
@example([b'{"at": %d.0}' % time_us for time_us in (10**16 + 2, LAST_US + 64, FIRST_US - 64)])
@example([BOM_UTF8 + b'{"at": 1}', BOM_UTF8, BOM_UTF8 + b"{"])
@example([b'{"at": %d}' % time_us for time_us in (FIRST_US, FIRST_US - 1, LAST_US, LAST_US + 1)])
def test_ndjson_as_the_json_module_reads_it(lines: list[bytes]) -> None:
    for field, other in ((AT, NESTED), (NESTED, AT)):
        decoder = NdjsonDecoder(field, [other.path])
        assert outcomes(decoder, lines, field.path) == [json_oracle(line, field.path) for line in lines]


@given(
    st.lists(objects, max_size=6),
    st.sampled_from([["user.id", "user.x.at"], ["user", "user.id"], ["user.x", "user.x.at"]]),
)
def test_fields_of_objects_are_as_the_json_module_reads_them(written: list[Any], paths: list[str]) -> None:
    """A record that lacks the object, or has another value in its place, has no value there."""
    found = NdjsonDecoder(None, paths).decode([json.dumps(record).encode() for record in written]).columns
    for path in paths:
        values = [nested_value(record, path) for record in written]
        expected = [None if isinstance(value, Reason) else value for value in values]
        assert json.dumps(found[path].tolist()) == json.dumps(expected)


@given(records)
def test_the_outcome_of_a_record_depends_on_it_alone(lines: list[bytes]) -> None:
    decoder = NdjsonDecoder(AT)
    assert outcomes(decoder, lines, "at") == [outcomes(decoder, [line], "at")[0] for line in lines]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"{}", Reason.MISSING_FIELD),
        (b'{"at": null}', Reason.NULL),
        (b'{"at": "one"}', Reason.BAD_TIME),
        (b'{"at": "caf\xe9"}', Reason.BAD_TIME),
        (b'{"at": 1e400}', Reason.BAD_TIME),
        (b'{"at": true}', Reason.BAD_TIME),
        (b'{"at": {}}', Reason.BAD_TIME),
        (b'{"at": 1e300}', Reason.BAD_TIME),
        (b'{"at": 1', Reason.UNDECODABLE),
        (b'"at"', Reason.UNDECODABLE),
    ],
)
def test_the_reasons_of_a_refusal(record: bytes, reason: Reason) -> None:
    assert outcomes(NdjsonDecoder(AT), [b'{"at": 5}', record], "at") == [5, reason]


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=6)


@given(st.lists(st.tuples(cells, times.map(str) | cells, cells), max_size=6))
def test_csv_as_the_csv_module_reads_it(rows: list[tuple[str, str, str]]) -> None:
    lines = [_csv_line(row) for row in rows]
    decoder = CsvDecoder(["id", "at", "note"], AT)
    for row, found in zip(rows, outcomes(decoder, lines, "at"), strict=True):
        text = row[1]
        if text == "":
            assert found is Reason.NULL
        elif text.isascii() and text.removeprefix("-").isdigit():
            assert found == int(text)
        elif isinstance(found, int):
            assert found == round(float(text))
        else:
            assert found is Reason.BAD_TIME


def _csv_line(row: tuple[str, ...]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(row)
    return text.getvalue().encode()


@pytest.mark.parametrize("line", [b"1", b"1,2,3,4", b'1,2,"open', b'1,"2"x,3'])
def test_csv_lines_that_are_no_records(line: bytes) -> None:
    assert outcomes(CsvDecoder(["id", "at", "note"], AT), [line, b"1,2,3"], "at") == [Reason.UNDECODABLE, 2]


def test_a_long_value_is_read_in_quotes_and_without() -> None:
    text = "x" * (1 << 18)
    lines = [f"{note},2,3".encode() for note in (text, f'"{text}"', f'"{text}\r{text}"')]
    assert outcomes(CsvDecoder(["note", "at", "id"], AT), lines, "at") == [2, 2, 2]


def test_a_row_in_quotes_that_would_hold_up_cuts_is_undecodable() -> None:
    """Its parts are short enough, alone; without quotes such a row takes a tenth of the time, and is read."""
    part = "x" * (1 << 21)
    rows = [f"{end}{part}{end},{end}{part}{end},2".encode() for end in ('"', "")]
    found = outcomes(CsvDecoder(["one", "two", "at"], AT), rows, "at")
    assert found == [Reason.UNDECODABLE, 2]


def test_a_header_without_the_field_is_refused() -> None:
    with pytest.raises(OperatorError, match="no column at"):
        CsvDecoder(["id", "when"], AT)


@given(records, st.integers(1, 4), st.integers(1, 60))
def test_decoding_in_turns_gives_what_decoding_at_once_gives(
    records: list[bytes], at_once: int, bytes_at_once: int
) -> None:
    decoder = NdjsonDecoder(AT)
    whole = decoder.decode(records)
    with patch.multiple(decode, RECORDS_AT_ONCE=at_once, BYTES_AT_ONCE=bytes_at_once):
        parts = asyncio.run(decode.decoded_in_turns(lambda part: decoder.decode(records[part]), records))
    assert parts.kept.tolist() == whole.kept.tolist()
    assert parts.columns["at"].tolist() == whole.columns["at"].tolist()
    assert parts.refused == whole.refused


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], [[]]),
        ([10] * 4_500, [[10] * 2_000, [10] * 2_000, [10] * 500]),
        ([40_000, 25_536, 1, 65_536, 70_000, 5, 0], [[40_000, 25_536], [1], [65_536], [70_000], [5, 0]]),
    ],
)
def test_a_turn_has_a_bounded_number_of_records_and_of_bytes_or_one_record(
    sizes: list[int], expected: list[list[int]]
) -> None:
    values, seen = [bytes(size) for size in sizes], []

    def part(of: slice) -> Decoded:
        seen.append([len(value) for value in values[of]])
        return NdjsonDecoder(AT).decode([])

    asyncio.run(decode.decoded_in_turns(part, values))
    assert seen == expected


@pytest.mark.parametrize(
    "record",
    [
        b'{"at": "x", "k": [' + b"[]," * 333_000 + b"0]}",
        b'{"at": 1, "k": {' + b",".join(b'"%d":{}' % number for number in range(90_000)) + b"}}",
        b'{"at": 1, "other": "' + b"," * 999_000 + b'"}',
    ],
    ids=["bad time", "key", "text"],
)
def test_json_of_too_many_values_is_undecodable_at_once(record: bytes) -> None:
    """No other task runs while a record is decoded, so a long decoding would delay a cut."""
    decoder, ordinary = NdjsonDecoder(AT, ["k"]), b'{"at": 1}'
    took_s = []
    for _ in range(5):  # the shortest is that without a pause
        began_s = time.process_time()
        found = decoder.decode([ordinary, record, ordinary])
        took_s.append(time.process_time() - began_s)
    assert min(took_s) < 0.05  # 0.002 s on an idle machine; decoding it took up to 0.2 s
    assert (found.kept.tolist(), found.refused) == ([0, 2], [(1, Reason.UNDECODABLE)])


def test_long_json_that_is_no_object_is_parsed_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = 0

    def counting(*paths: Any, **options: Any) -> list[Any]:
        def counted(decode: Callable[[bytes], Any], record: bytes) -> Any:
            nonlocal parsed
            parsed += 1
            return decode(record)

        return [(partial(counted, decode), columns) for decode, columns in readers(*paths, **options)]

    monkeypatch.setattr(decode, "readers", counting)
    decoder = NdjsonDecoder(AT, ["a.b"])
    monkeypatch.undo()
    assert decoder.decode([b'{"at": 1, "k": "' + b'\\"' * 100_000]).refused == [(0, Reason.UNDECODABLE)]
    assert parsed == 2  # once for each way to name a field


def test_large_json_of_few_values_is_counted() -> None:
    values = b'{"at": 1, "text": "' + b"x" * 5_000_000 + b'", "k": [' + b"1," * 60_000 + b"1]}"
    assert outcomes(NdjsonDecoder(AT), [values], "at") == [1]


@pytest.mark.parametrize(("values", "expected"), [(65_000, 1), (66_000, Reason.UNDECODABLE)])
def test_csv_of_too_many_values_is_undecodable(values: int, expected: object) -> None:
    line = b'1,"' + b"," * values + b'"'
    assert outcomes(CsvDecoder(["at", "note"], AT), [line], "at") == [expected]


def test_others_run_while_records_are_decoded() -> None:
    """A due cut does not wait until the last record is decoded."""
    seen: list[str] = []

    async def both() -> None:
        async def cut() -> None:
            seen.append("cut")

        def part(records: slice) -> Decoded:
            seen.append("part")
            return decoder.decode(values[records])

        asyncio.get_running_loop().create_task(cut())
        await decode.decoded_in_turns(part, values)

    decoder, values = NdjsonDecoder(AT), [b'{"at": 1}'] * (3 * decode.RECORDS_AT_ONCE)
    asyncio.run(both())
    assert seen == ["part", "cut", "part", "part"]
