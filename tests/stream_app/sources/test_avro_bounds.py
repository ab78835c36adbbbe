"""Records are refused if they would take much more time or memory than their size suggests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest

from stream_app.core.incoming import Reason
from stream_app.sources.avro import FREE_VALUES, MOST_DEPTH, read_schema
from stream_app.sources.decode import TimeField
from stream_app.sources.topic_records import TopicDecoder, topic_decoder
from tests.registry import Registry, record, serving

pytestmark = pytest.mark.slow

EMPTY = {"type": "record", "name": "Empty", "fields": []}
NODE: dict[str, Any] = {"type": "record", "name": "Node", "fields": [{"name": "n", "type": "int"}]}
NODE["fields"].append({"name": "next", "type": ["null", "Node"]})
WIDE = {"type": "record", "name": "Wide", "fields": [{"name": f"f{i}", "type": "null"} for i in range(2_000)]}


def with_field(kind: Any) -> dict[str, Any]:
    fields = [{"name": "at", "type": "long"}, {"name": "x", "type": kind}]
    return {"type": "record", "name": "Click", "fields": fields}


def long(number: int) -> bytes:
    """Return a number as Avro writes it."""
    number, written = (number << 1) ^ (number >> 63), b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def outcome(kind: Any, value: bytes) -> Reason | None:
    """Return why a record with these bytes as field x is refused, or None if it is counted."""
    decoder, values = prepared(kind, [long(5) + value])
    found = decoder.decode(values, [0])
    return found.refused[0][1] if found.refused else None


def prepared(kind: Any, bodies: list[bytes]) -> tuple[TopicDecoder, list[bytes]]:
    """Return a decoder that knows the schema, and records with that schema's id."""
    with serving(Registry()) as registry:
        registry.register(1, with_field(kind))
        decoder: TopicDecoder = topic_decoder("avro", TimeField("at", "s"), (), (), registry.url)
        values = [b"\0\0\0\0\1" + body for body in bodies]
        asyncio.run(decoder.prepare([values]))
    return decoder, values


ELEMENTS_WITHOUT_BYTES = {
    "null": "null",
    "record": EMPTY,
    "fixed": {"type": "fixed", "name": "Nothing", "size": 0},
    "record of them": {"type": "record", "name": "R", "fields": [{"name": "e", "type": EMPTY}]},
}


@pytest.mark.parametrize("items", ELEMENTS_WITHOUT_BYTES.values(), ids=ELEMENTS_WITHOUT_BYTES)
def test_elements_without_bytes_are_refused_beyond_the_bound_and_at_once(items: Any) -> None:
    array = {"type": "array", "items": items}
    began_s = time.process_time()
    assert outcome(array, long(30_000_000) + b"\0") is Reason.UNDECODABLE
    assert outcome(array, long(-30_000_000) + long(0) + b"\0") is Reason.UNDECODABLE
    assert time.process_time() - began_s < 2  # decoding them took 4 s and 230 MB before the bound
    assert outcome(array, long(FREE_VALUES - 100) + b"\0") is None


def test_elements_with_bytes_are_refused_where_the_bytes_are_missing() -> None:
    assert outcome({"type": "array", "items": "int"}, long(16_000) + b"\2" * 16_000 + b"\0") is None
    assert outcome({"type": "array", "items": "int"}, long(30_000_000) + b"\0") is Reason.UNDECODABLE


NUMBERS = {"type": "array", "items": {"type": "bytes", "logicalType": "decimal", "precision": 9}}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "array", "items": ["int", "Click"]}, long(499_000) + b"\0\2" * 499_000 + b"\0"),
        ({"type": "array", "items": ["null", "string"]}, long(990_000) + b"\0" * 990_000 + b"\0"),
        (NUMBERS, long(495_000) + b"\2\1" * 495_000 + b"\0"),
        ({"type": "array", "items": "int"}, long(17_000) + b"\2" * 17_000 + b"\0"),
    ],
    ids=["recursive", "union", "decimal", "int"],
)
def test_a_record_of_too_many_values_is_undecodable_at_once(kind: Any, value: bytes) -> None:
    """No other task runs while a record is decoded, so a long decoding would delay a cut."""
    decoder, values = prepared(kind, [long(5) + value])
    took_s = []
    for _ in range(5):  # the shortest is that without a pause
        began_s = time.process_time()
        found = decoder.decode(values, [0])
        took_s.append(time.process_time() - began_s)
    assert min(took_s) < 0.2  # 0.02 s on an idle machine; decoding it took 0.5 to 2 s
    assert [reason for _, reason in found.refused] == [Reason.UNDECODABLE]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", long(5_000_000) + b"x" * 5_000_000),
        ({"type": "array", "items": "string"}, long(16_000) + (long(60) + b"x" * 60) * 16_000 + b"\0"),
        ({"type": "map", "values": NODE}, long(4_000) + (long(60) + b"x" * 60 + b"\2\0") * 4_000 + b"\0"),
    ],
    ids=["string", "strings", "map"],
)
def test_a_large_record_of_few_values_is_counted(kind: Any, value: bytes) -> None:
    assert outcome(kind, value) is None


def test_a_wide_record_without_bytes_is_refused_where_it_is_repeated() -> None:
    assert outcome({"type": "array", "items": ["null", WIDE]}, long(90) + b"\2" * 90 + b"\0") is not None
    assert outcome({"type": "array", "items": ["null", WIDE]}, long(90) + b"\0" * 90 + b"\0") is None


def test_a_number_that_never_ends_is_refused_at_once() -> None:
    began_s = time.process_time()
    assert outcome(NODE, b"\xff" * 500_000) is Reason.UNDECODABLE
    assert time.process_time() - began_s < 2


@pytest.mark.parametrize(
    ("levels", "refused"), [(MOST_DEPTH // 2 - 5, None), (MOST_DEPTH, Reason.UNDECODABLE)]
)
def test_types_within_themselves_are_refused_beyond_the_bound(levels: int, refused: Reason | None) -> None:
    assert outcome(NODE, b"\2\2" * levels + b"\2\0") is refused


def test_a_record_nested_a_million_times_does_not_end_the_process() -> None:
    """Without a bound the codec overflows the stack at every start, and the position never moves."""
    code = (
        "from tests.stream_app.sources.test_avro_bounds import NODE, outcome\n"
        "print(outcome(NODE, b'\\2\\2' * 1_000_000 + b'\\2\\0'))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "undecodable"), ended.stderr


CHECKED: list[tuple[Any, Any]] = [
    (NODE, {"n": 1, "next": {"n": -300, "next": None}}),
    ({"type": "array", "items": "null"}, [None] * 3),
    (
        {"type": "map", "values": [NODE, "string", {"type": "map", "values": EMPTY}]},
        {"a": "b", "c": {"d": {}}},
    ),
    (
        {
            "type": "record",
            "name": "All",
            "fields": [
                {"name": "nothing", "type": {"type": "array", "items": EMPTY}},
                {"name": "flag", "type": "boolean"},
                {"name": "f", "type": "float"},
                {"name": "d", "type": {"type": "double"}},
                {"name": "b", "type": ["null", "bytes"]},
                {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
                {"name": "again", "type": {"type": "array", "items": "E"}},
                {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}},
                {"name": "x", "type": {"type": "fixed", "name": "X", "size": 3}},
            ],
        },
        {"nothing": [{}], "flag": True, "f": 1.5, "d": 2.5, "b": b"\xff" * 200, "e": "B", "again": ["A", "B"]}
        | {"price": b"\4", "x": b"abc"},
    ),
]


@pytest.mark.parametrize(("kind", "value"), CHECKED)
def test_ordinary_records_of_schemas_that_are_checked_are_counted(kind: Any, value: Any) -> None:
    schema = with_field(kind)
    assert not read_schema([schema]).bounded
    whole = record(1, schema, {"at": 5, "x": value})[6:]
    assert outcome(kind, whole) is None
    assert outcome(kind, whole[:-1]) is Reason.UNDECODABLE


def test_ordinary_schemas_need_no_check() -> None:
    nested = {
        "type": "array",
        "items": {"type": "map", "values": ["null", "string", {"type": "array", "items": "int"}]},
    }
    assert read_schema([with_field(nested)]).bounded
