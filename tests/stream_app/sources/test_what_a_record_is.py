"""Which bytes are a record, and which value each of its fields has, whoever else reads the log."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.config import load_text
from stream_app.core.incoming import Reason
from stream_app.core.json_objects import nested_value
from stream_app.sources.decode import CsvDecoder, Decoder, NdjsonDecoder, TimeField
from stream_app.sources.topic_records import TIMESTAMP, TopicDecoder, topic_decoder
from tests.registry import Registry, record
from tests.stream_app.sources.test_avro import CLICK, MOMENT

AT = TimeField("at", "us")
FIELDS = ("k", "a.b", "a", "a.b.c")

odd = st.sampled_from(
    [
        *(
            b'"\xe9"',
            b"1e400",
            b"-1e400",
            b'"\\ud800"',
            b'"\\ud83d\\ude00"',
            b'"\\\\ud800"',
            b'"\xed\xa0\x80"',
        ),
        *(b"1" * 5_000, b"NaN", b"null", b"true", b"7", b"7.0", b'"7"', b"[1e400]", b"{}", b'{"b": "\xe9"}'),
        *(b'{"b": 1}', b'{"b": {"c": 2}}', b'{"b.c": 3}', b'{"\xe9": 1}', b'{"b": 1e400}', b"{", b'"', b"01"),
    ]
)
names = st.sampled_from([b"at", b"k", b"a", b"a.b", b"a.b.c", b"b", b"\xe9", b"\\u0061t"])
members = st.lists(st.tuples(names, odd | st.just(b"5")), max_size=5)
ends = st.sampled_from([b"", b"\n", b"\r\n", b"\0", b"\r", b" ", b"x"])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Draw a line of JSON that may be damaged anywhere."""
    written = b",".join(b'"%s":%s' % member for member in [(b"at", b"1"), *draw(members)])
    return draw(st.sampled_from([b"", BOM_UTF8, b"\0\0"])) + b"{" + written + b"}" + draw(ends)


def columns(decoder: Decoder, read: list[bytes]) -> dict[str, list[str]]:
    """Return the value of each record in each column, and the reasons of the refused ones."""
    decoded = decoder.decode(read)
    found: dict[str, list[str]] = {}
    for path, column in decoded.columns.items():
        values = {index: repr(reason) for index, reason in decoded.refused}
        values |= dict(zip(decoded.kept.tolist(), map(repr, column.tolist()), strict=True))
        found[path] = [values[index] for index in range(len(read))]
    return found


@given(st.lists(records(), min_size=1, max_size=4), st.sets(st.sampled_from(FIELDS), min_size=1))
def test_no_field_that_others_read_changes_a_record(lines: list[bytes], others: set[str]) -> None:
    """A stream that reads one field finds what it finds if it is alone, and its neighbours change nothing."""
    together = columns(NdjsonDecoder(AT, sorted(others)), lines)
    assert together["at"] == columns(NdjsonDecoder(AT), lines)["at"]
    for path in others:
        alone = [columns(NdjsonDecoder(AT, [path]), [line])[path] for line in lines]
        assert together[path] == [value for [value] in alone]


def test_json_fields_that_cannot_be_read_have_no_value() -> None:
    values = [b'"\xe9"', b"1e400", b"-1e400", b'"\\ud800x"', b'"\\\\ud800"', b"1" * 5_000, b'{"b": "\xe9"}']
    lines = [b'{"at": 1, "k": %s}' % value for value in values]
    found = NdjsonDecoder(AT, ["k"]).decode(lines).columns["k"].tolist()
    infinity = float("inf")
    assert found == [None, infinity, -infinity, "\ufffdx", "\\ud800", infinity, None]


@pytest.mark.parametrize(
    "record",
    [
        b'{"at": 1, "k": "a"}\n',
        b'{"at": 1, "k": "a"}\r\n',
        b'{"at": 1, "k": "a"}\r',
        b'{"at": 1, "k": "a"}\0',
        b'{"at": 1, "k": "a"}\0\n',
        b'\0\0\0{"at": 1, "k": "a"}',
        BOM_UTF8 + b'{"at": 1, "k": "a"}\n',
        b'\t {"at": 1, "k": "a"} ',
        b'{"at": 1, "n": "\\ud83d", "k": "a"}',
        b'{"at": 1, "n": [NaN, -Infinity], "NaN": "\\"NaN", "k": "a"}',
        b'{"at": 1, "\xe9": "\xe9", "k": "a"}',
        b'{"at": 1, "at": 1, "k": "x", "k": "a"}',
        b'{"\\u0061t": 1, "k": "\\u0061"}',
    ],
)
def test_bytes_around_a_json_record_are_no_part_of_it(record: bytes) -> None:
    for lines in ([record], [record, b'{"at": 1}'], [b"{", record]):
        decoded = NdjsonDecoder(AT, ["k"]).decode(lines)
        place = decoded.kept.tolist().index(lines.index(record))
        assert (decoded.columns["at"][place], decoded.columns["k"][place]) == (1, "a")


@pytest.mark.parametrize(
    "record",
    [b"", b"\0", b"[]", b"{} {}", b"{}\n{}", b"{'at': 1}", b'{"at": 1},', b'{"at": nan}', b"\xff\xfe{\0"],
)
def test_bytes_that_are_no_json_object_are_undecodable(record: bytes) -> None:
    assert NdjsonDecoder(AT).decode([record]).refused == [(0, Reason.UNDECODABLE)]


@pytest.mark.parametrize(
    "record",
    [
        b"1,x,a\n",
        b"1,x,a\r\n",
        b"1,x,a\r",
        b"1,x,a\0",
        b"\0\0" + b"1,x,a",
        BOM_UTF8 + b"1,x,a\r\n",
        b'"1","x","a"\r\n',
        b'1,"x\ny",a\n',
        b'1,"x\r\n1,y,b",a\n',
        b"1,caf\xe9,a",
        b'1,"caf\xe9",a',
        b"1,\0,a",
    ],
)
def test_bytes_around_a_row_are_no_part_of_it(record: bytes) -> None:
    decoded = CsvDecoder(["at", "n", "k"], AT, ["k"]).decode([b"1", record])
    assert [column.tolist() for column in decoded.columns.values()] == [["a"], [1]]
    time_last = CsvDecoder(["k", "n", "t"], TimeField("t", "us"), ["k"]).decode([b"a,x,1\r\n", b"a,x,1\n"])
    assert time_last.columns["t"].tolist() == [1, 1]


def test_csv_values_that_are_not_utf_8_are_no_values() -> None:
    found = CsvDecoder(["at", "k"], AT, ["k"]).decode(
        [b"1,caf\xe9", "1,café".encode(), b'1,"\xe9"', b"1,\xff\xfe"]
    )
    assert found.columns["k"].tolist() == [None, "café", None, None]


@pytest.mark.parametrize(
    ("event", "path", "expected"),
    [
        ({"log.level": 1}, "log.level", 1),
        ({"log": {"level": 1}}, "log.level", 1),
        ({"log.level": 1, "log": {"level": 2}}, "log.level", 1),
        ({"log": {"level": 2}, "log.level": 1}, "log.level", 1),
        ({"log.level": None, "log": {"level": 2}}, "log.level", Reason.NULL),
        ({"attributes": {"http.status_code": 1}}, "attributes.http.status_code", 1),
        ({"attributes": {"http": {"status_code": 1}}}, "attributes.http.status_code", 1),
        ({"attributes.http": {"status_code": 1}}, "attributes.http.status_code", 1),
        ({"attributes.http": {}, "attributes": {"http.status_code": 1}}, "attributes.http.status_code", None),
        ({"attributes.http": 7, "attributes": {"http.status_code": 1}}, "attributes.http.status_code", None),
        ({"a": {"b.c": 1, "b": {"c": 2}}, "a.b": {"d": 3}}, "a.b.c", None),
        ({"a": {"b.c": 1, "b": {"c": 2}}}, "a.b.c", 1),
        ({"log": "x"}, "log.level", None),
        ({"log": None}, "log.level", Reason.NULL),
        ({}, "log.level", None),
    ],
)
def test_the_longest_name_counts(event: dict[str, Any], path: str, expected: Any) -> None:
    wanted = Reason.MISSING_FIELD if expected is None else expected
    assert nested_value(event, path) == wanted
    line = json.dumps(event | {"at": 1}).encode()
    for lines in ([line], [line, json.dumps({path: 5, "at": 1}).encode()], [b'{"at": 1}', line, b"{"]):
        as_key = NdjsonDecoder(AT, [path]).decode(lines).columns[path]
        as_time = NdjsonDecoder(TimeField(path, "us"), ["at"]).decode(lines)
        place = lines.index(line)
        if isinstance(wanted, Reason):
            assert as_key[place] is None
            assert (place, wanted) in as_time.refused
        else:
            assert as_key[place] == wanted
            assert as_time.columns[path][as_time.kept.tolist().index(place)] == wanted


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r", b"\0", b"\0\n"])
def test_records_of_topics_are_read_without_their_ends(end: bytes) -> None:
    """Telegraf ends every record with LF, and strings of C with a zero."""
    registered = b"\0\0\0\0\7"
    for form, names, value in (
        ("csv", ["at", "k"], b"1,a"),
        ("csv", ["k", "at"], b"a,1"),
        ("json", (), b'{"at": 1, "k": "a"}'),
        ("json_schema", (), registered + b'{"at": 1, "k": "a"}'),
    ):
        found = topic_decoder(form, AT, names, ["k"]).decode([value + end], [0])  # type: ignore[arg-type]
        assert (found.columns["at"].tolist(), found.columns["k"].tolist()) == ([1], ["a"])


def test_by_the_record_s_own_time_a_field_is_what_its_bytes_say() -> None:
    """A value that cannot be read takes no other field from its record, and no record from its topic."""
    field = TimeField(TIMESTAMP, "ms")
    values = [b'{"k": "a", "n": "\xe9"}', b'{"k": "a", "n": 1e400}', b'{"k": "a"', b'{"k": "a"}\0']
    found = topic_decoder("json", field, (), ["k", "n"]).decode(values, [1, 2, 3, 4])
    assert found.columns[TIMESTAMP].tolist() == [1_000, 2_000, 3_000, 4_000]
    assert found.columns["k"].tolist() == ["a", "a", None, "a"]
    assert found.columns["n"].tolist() == [None, float("inf"), None, None]


@pytest.mark.parametrize("others", [[], ["k"], ["k", "a.b"]])
def test_a_neighbour_takes_no_room_for_nested_values(others: list[str]) -> None:
    """The deepest record that is decoded by itself is decoded beside a damaged one, too."""
    decoder = NdjsonDecoder(AT, others)

    def nested(depth: int) -> bytes:
        return b'{"at": 1, "k": %s}' % (b"[" * depth + b"]" * depth)

    too_deep = bisect(range(1_100), False, key=lambda depth: not len(decoder.decode([nested(depth)]).kept))
    deepest = too_deep - 1
    assert 500 < deepest < 1_000
    for damaged in (b'{"at": 1, "k": 1e400}', b"{"):
        for lines in ([nested(deepest), damaged], [damaged, nested(deepest)]):
            assert lines.index(nested(deepest)) in decoder.decode(lines).kept.tolist()


TIME = TimeField(TIMESTAMP, "ms")
TEXT = """
kafka: {bootstrap_servers: "one:9092", group: counts}
streams:
  sales:
    source: {topic: shop, start: latest}
    time: {field: "@timestamp", bin: 5m, grace: 30s, epoch: 1d}
    keys: {field: country, list: [FR, DE]}
    sum: {field: cart.amount, min: 0, max: 500, unit: 0.01}
    where: {paid: true}
    privacy: {epsilon: 1.0}
"""


def timestamped(decoder: TopicDecoder, values: list[bytes], at_ms: list[int]) -> dict[str, list[object]]:
    """Return the columns, and the refused records under ``refused``."""
    asyncio.run(decoder.prepare([values]))
    found = decoder.decode(values, at_ms)
    assert decoder.needs_timestamps
    return {path: column.tolist() for path, column in found.columns.items()} | {"refused": [*found.refused]}


def test_configuration_takes_keys_sum_and_where_beside_the_records_timestamp() -> None:
    [stream] = load_text(TEXT, Path("/app/app.yaml"), {}).streams
    assert stream.declared.time.field == "@timestamp"
    assert stream.declared.cell_fields == ("country", "cart.amount", "paid")


def test_json_fields_stand_beside_timestamps_and_a_broken_value_has_no_field() -> None:
    decoder = topic_decoder("json", TIME, others=["country", "cart.amount"])
    values = [b'{"country":"FR","cart":{"amount":3}}', b"{", b'{"country":"DE"}', b'{"country":"FR"}']
    assert timestamped(decoder, values, [5, 6, -1, 7]) == {
        TIMESTAMP: [5_000, 6_000, 7_000],
        "country": ["FR", None, "FR"],
        "cart.amount": [3, None, None],
        "refused": [(2, Reason.BAD_TIME)],
    }


def test_csv_fields_stand_beside_timestamps() -> None:
    decoder = topic_decoder("csv", TIME, ["country", "amount"], ["amount"])
    assert timestamped(decoder, [b"FR,3", b"FR", b"DE,"], [5, 6, 7]) == {
        TIMESTAMP: [5_000, 6_000, 7_000],
        "amount": ["3", None, None],
        "refused": [],
    }


def test_avro_fields_stand_beside_timestamps(registry: Registry) -> None:
    registry.register(7, CLICK)
    decoder = topic_decoder("avro", TIME, (), ["user.id"], registry.url)
    found = timestamped(decoder, [record(7, CLICK, {"user": {"id": "3"}, "at": MOMENT}), b"{}"], [5, 6])
    assert (found[TIMESTAMP], found["refused"]) == ([5_000, 6_000], [])
    assert found["user.id"] == ["3", None]


def test_another_stream_that_reads_fields_changes_no_count_of_a_stream_without_fields() -> None:
    values, at_ms = [b'{"country":"FR"}', b"\xff{", b"[1]", b"7"], [1, 2, 3, 4]
    alone = timestamped(topic_decoder("json", TIME), values, at_ms)
    beside = timestamped(topic_decoder("json", TIME, others=["country"]), values, at_ms)
    assert beside[TIMESTAMP] == alone[TIMESTAMP]
    assert beside["refused"] == alone["refused"] == []
