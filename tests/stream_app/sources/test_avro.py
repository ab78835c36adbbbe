"""Avro records with a schema registry: columns, refusals, and a registry that does not answer."""

from __future__ import annotations

import asyncio
import io
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_app.core.counting.cells import Buckets
from stream_app.kafka.cluster import Cluster
from stream_app.monitoring.logs import configure
from stream_app.ports import OperatorError
from stream_app.sources import schema_registry
from stream_app.sources.avro import AVRO
from stream_app.sources.decode import NdjsonDecoder, TimeField
from stream_app.sources.kafka import KafkaSource
from stream_app.sources.schema_registry import SchemaRegistry
from stream_app.sources.topic_records import TopicDecoder, topic_decoder
from tests.brokers import Topic
from tests.certificates import write_certificates
from tests.examples import examples
from tests.patience import PATIENCE_S, eventually
from tests.registry import Registry, decoded, record, refusals, serving

pytestmark = pytest.mark.slow

USER = {"type": "record", "name": "User", "fields": [{"name": "id", "type": ["null", "string", "bytes"]}]}
CLICK: dict[str, Any] = {
    "type": "record",
    "name": "Click",
    "namespace": "web",
    "fields": [
        {"name": "user", "type": ["null", USER]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "other", "type": {"type": "string", "logicalType": "uuid"}, "default": "x"},
    ],
}
MOMENT = datetime(2024, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)
MOMENT_US = (MOMENT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def decoder_of(registry: Registry, field: str = "at", format: Any = "s") -> TopicDecoder:
    others = ["user.id"]
    return topic_decoder("avro", TimeField(field, format), (), others, registry.url)


def of_time(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "T", "fields": [{"name": "at", "type": kind}]}


def test_configured_fields_become_columns_and_each_schema_is_fetched_once(registry: Registry) -> None:
    registry.register(7, CLICK)
    values = [
        record(7, CLICK, {"user": {"id": "ada"}, "at": MOMENT}),
        record(7, CLICK, {"user": None, "at": MOMENT}),
        record(7, CLICK, {"user": {"id": b"\xff"}, "at": MOMENT}),
    ]
    decoder = decoder_of(registry)
    for _ in range(2):
        found = decoded(decoder, values)
        assert found.kept.tolist() == [0, 1, 2]
        assert found.columns["at"].tolist() == [MOMENT_US] * 3
        assert found.columns["user.id"].tolist() == ["ada", None, None]
    assert registry.asked == ["/schemas/ids/7"]


def test_schemas_of_different_units_in_one_batch(registry: Registry) -> None:
    kinds: dict[int, tuple[Any, Any]] = {
        1: ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT),
        2: ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT),
        3: ("long", MOMENT_US // 1_000_000),
        4: ("double", MOMENT_US / 1e6),
        5: ({"type": "long", "logicalType": "timestamp-nanos"}, MOMENT_US * 1000 + 999),
        6: ({"type": "long", "logicalType": ["no name"]}, MOMENT_US // 1_000_000),
    }
    values = []
    for schema_id, (kind, value) in kinds.items():
        registry.register(schema_id, of_time(kind))
        values.append(record(schema_id, of_time(kind), {"at": value}))
    assert decoded(decoder_of(registry), values).columns["at"].tolist() == [
        MOMENT_US,
        MOMENT_US,
        MOMENT_US // 1_000_000 * 1_000_000,
        MOMENT_US,
        MOMENT_US,
        MOMENT_US // 1_000_000 * 1_000_000,
    ]


def test_the_longest_key_of_a_map_counts(registry: Registry) -> None:
    """A map's keys may have dots, also those of a time with its own unit."""
    times = {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}
    texts = {"type": "map", "values": "string"}
    fields = [{"name": "times", "type": times}, {"name": "attributes", "type": texts}]
    schema = {"type": "record", "name": "Span", "fields": fields}
    registry.register(1, schema)
    event = {"times": {"event.created": MOMENT}, "attributes": {"http.method": "GET", "http": "x"}}
    decoder = topic_decoder(
        "avro", TimeField("times.event.created", "s"), (), ["attributes.http.method"], registry.url
    )
    found = decoded(decoder, [record(1, schema, event)])
    assert found.columns["times.event.created"].tolist() == [MOMENT_US]
    assert found.columns["attributes.http.method"].tolist() == ["GET"]


@pytest.mark.parametrize(("value", "seconds"), [("1", 1), (" 1.5 ", 1.5), ("1e0", 1), (1, 1), (1.5, 1.5)])
def test_texts_of_numbers_are_times(registry: Registry, value: Any, seconds: float) -> None:
    schema = of_time(["string", "long", "double"])
    registry.register(1, schema)
    found = decoded(decoder_of(registry), [record(1, schema, {"at": value})])
    assert found.columns["at"].tolist() == [int(seconds * 1_000_000)]


def test_what_is_no_number_is_no_value(registry: Registry) -> None:
    amount = {"name": "x", "type": "double"}
    schema = {"type": "record", "name": "A", "fields": [{"name": "at", "type": "long"}, amount]}
    registry.register(1, schema)
    values = [record(1, schema, {"at": 1, "x": float(x)}) for x in ("nan", "inf", "2")]
    decoder = topic_decoder("avro", TimeField("at", "s"), (), ["x"], registry.url)
    assert decoded(decoder, values).columns["x"].tolist() == [None, float("inf"), 2.0]


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        ("float", 0.1, 0.1),
        ("float", 19.99, 19.99),
        ("float", 5.0, 5.0),
        ("float", -1e-7, -1e-7),
        ("float", float("inf"), float("inf")),
        ({"type": "float", "logicalType": ["no", "name"]}, 0.7, 0.7),
        (["null", "string", "float"], 0.3, 0.3),
        ({"type": "map", "values": "float"}, {"y": 0.6}, 0.6),
        ("double", 0.10000000149011612, 0.10000000149011612),
        (["float", "double"], 0.1, pytest.approx(0.1)),
    ],
)
def test_a_float_of_32_bits_is_the_number_that_was_written(
    registry: Registry, kind: Any, written: Any, read: Any
) -> None:
    fields = [{"name": "at", "type": "long"}, {"name": "x", "type": kind}]
    schema = {"type": "record", "name": "F", "fields": fields}
    registry.register(1, schema)
    path = "x.y" if isinstance(written, dict) else "x"
    decoder = topic_decoder("avro", TimeField("at", "s"), (), [path], registry.url)
    found = decoded(decoder, [record(1, schema, {"at": 1, "x": written})])
    assert found.columns[path].tolist() == [read]


def test_texts_of_times_are_read_as_iso8601_only(registry: Registry) -> None:
    schema = of_time(["string", "long", "boolean"])
    registry.register(1, schema)
    values = [record(1, schema, {"at": value}) for value in ("1970-01-01T00:00:01Z", "today", 1, True)]
    found = decoded(decoder_of(registry, format="iso8601"), values)
    assert found.columns["at"].tolist() == [1_000_000]
    assert refusals(found) == [(1, "bad_time"), (2, "bad_time"), (3, "bad_time")]
    assert decoded(decoder_of(registry), values).kept.tolist() == [2]


def test_each_kind_of_uncountable_record_has_its_reason(registry: Registry) -> None:
    local = of_time({"type": "long", "logicalType": "local-timestamp-millis"})
    millis = of_time({"type": "long", "logicalType": "timestamp-millis"})
    registry.register(7, CLICK)
    registry.register(8, USER)
    registry.register(9, {"type": "object"}, schemaType="JSON")
    registry.register(10, {"type": "no such type"})
    registry.register(11, local)
    registry.register(12, millis)
    registry.register(13, "long")
    good = record(7, CLICK, {"user": {"id": "ada"}, "at": MOMENT})
    cases = [
        (good, None),
        (b"", "undecodable"),
        (b"\1" + good[1:], "undecodable"),  # another magic byte
        (b"\0\0\0\0\0" + good[5:], "undecodable"),  # no registry gives the id 0
        (b"\0\xff\xff\xff\xff" + good[5:], "undecodable"),
        (good[:-1], "undecodable"),
        (good + b"\0", "undecodable"),  # bytes that the schema does not know
        (b"\0\0\0\0\x09{}", "undecodable"),
        (b"\0\0\0\0\x0a\0", "undecodable"),
        (record(13, "long", 1), "undecodable"),
        (record(8, USER, {"id": "ada"}), "missing_field"),
        (record(7, CLICK, {"user": None, "at": None}), "null"),
        (record(11, local, {"at": 1}), "bad_time"),  # a local time without a zone is no instant
        (record(12, millis, {"at": 2**62}), "bad_time"),  # outside the calendar
    ]
    values = [value for value, _ in cases]
    found = decoded(decoder_of(registry), values)
    assert refusals(found) == [(index, reason) for index, (_, reason) in enumerate(cases) if reason]
    assert found.kept.tolist() == [0]
    # Each record's outcome depends on itself alone.
    for value, reason in cases:
        assert [told for _, told in refusals(decoded(decoder_of(registry), [value]))] == [reason][
            : bool(reason)
        ]


def test_a_schema_that_refers_to_others(registry: Registry) -> None:
    fields = [{"name": "at", "type": "Moment"}, {"name": "user", "type": "User"}]
    moment = {
        "type": "record",
        "name": "Moment",
        "fields": [{"name": "ms", "type": CLICK["fields"][1]["type"]}],
    }
    outer = {"type": "record", "name": "Outer", "fields": fields}
    references = [
        {"name": "Moment", "subject": "times/moment", "version": 2},
        {"name": "User", "subject": "user", "version": 1},
    ]
    registry.register(1, outer, references=references)
    registry.register(0, moment)
    registry.answers["/subjects/times%2Fmoment/versions/2"] = registry.answers["/schemas/ids/0"]
    registry.register(0, USER)
    registry.answers["/subjects/user/versions/1"] = registry.answers["/schemas/ids/0"]
    whole = {**outer, "fields": [{"name": "at", "type": moment}, {"name": "user", "type": USER}]}
    value = record(1, whole, {"at": {"ms": MOMENT}, "user": {"id": "ada"}})
    found = decoded(decoder_of(registry, "at.ms"), [value])
    assert found.columns["at.ms"].tolist() == [MOMENT_US]
    assert found.columns["user.id"].tolist() == ["ada"]


def click(schema_id: int) -> bytes:
    return record(schema_id, CLICK, {"user": None, "at": MOMENT})


def test_a_schema_that_the_registry_does_not_have_costs_its_record_only(registry: Registry) -> None:
    registry.register(8, CLICK)
    decoder = decoder_of(registry)
    for _ in range(2):
        found = decoded(decoder, [click(7), click(8)])
        assert refusals(found) == [(0, "unknown_schema")]
        assert found.kept.tolist() == [1]
    assert sorted(registry.asked) == ["/schemas/ids/7", "/schemas/ids/7", "/schemas/ids/8"]


def test_a_record_before_its_schema_is_registered_decides_nothing_for_later_records(
    registry: Registry,
) -> None:
    decoder = decoder_of(registry)
    assert refusals(decoded(decoder, [click(7)])) == [(0, "unknown_schema")]
    registry.register(7, CLICK)
    assert len(decoded(decoder, [click(7)] * 1_000).kept) == 1_000


def test_all_schemas_that_a_read_needs_are_asked_for_side_by_side(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "ANSWER_WITHIN_S", PATIENCE_S)
    for schema_id in range(1, 9):
        registry.register(schema_id, CLICK)
    registry.hanging = {f"/schemas/ids/{schema_id}" for schema_id in range(1, 13)}

    def answer_once_all_are_asked() -> None:
        eventually(lambda: registry.hanging <= set(registry.asked), "all are asked for")
        registry.hanging = set()

    answering = threading.Thread(target=answer_once_all_are_asked)
    answering.start()
    found = decoded(decoder_of(registry), [click(schema_id) for schema_id in range(1, 13)])
    answering.join()
    assert found.kept.tolist() == list(range(8))
    assert refusals(found) == [(index, "unknown_schema") for index in range(8, 12)]


@pytest.mark.parametrize("slow", [True, False])
def test_only_records_behind_one_without_an_answer_wait(
    registry: Registry, slow: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schema_registry, "ANSWER_WITHIN_S", 3.0)
    registry.register(7, CLICK)
    if slow:
        registry.hanging.add("/schemas/ids/8")
    else:
        registry.answers["/schemas/ids/8"] = {"error_code": 50001}
    decoder = decoder_of(registry)
    logs = [[click(7), click(7), click(8), click(7)], [click(9), click(7)], [], [click(8)]]
    assert asyncio.run(decoder.prepare(logs)) == [2, 2, 0, 0]
    assert refusals(decoder.decode(logs[1], [])) == [(0, "unknown_schema")]
    assert [line.levelname for line in caplog.records if line.name.startswith("stream_app")] == ["WARNING"]
    with pytest.raises(OSError, match=r"schema registry .*wait"):
        asyncio.run(decoder.prepare([[click(8), click(7)]]))
    registry.hanging.clear()
    registry.register(8, CLICK)
    assert asyncio.run(decoder.prepare(logs)) == [4, 2, 0, 1]


def test_a_flood_of_unknown_ids_keeps_no_other_log_from_its_schemas(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log with the unknown ids continues too, up to the first record whose id has no answer yet."""
    monkeypatch.setattr(schema_registry, "ASK_FOR_S", 0.5)
    registry.register(7, CLICK)
    decoder, flood = decoder_of(registry), [click(100 + index) for index in range(20_000)]
    ready = asyncio.run(decoder.prepare([flood, [click(7)] * 3]))
    assert 0 < ready[0] < len(flood)
    assert ready[1] == 3
    assert decoder.decode([click(7)] * 3, []).kept.tolist() == [0, 1, 2]
    assert {reason for _, reason in refusals(decoder.decode(flood[: ready[0]], []))} == {"unknown_schema"}


def test_a_flood_of_unknown_ids_delays_its_own_log_by_a_read_for_every_sixteen(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if one look-up takes longer than the time in which a read starts requests."""
    monkeypatch.setattr(schema_registry, "ASK_FOR_S", 0.1)
    monkeypatch.setattr(schema_registry, "ANSWER_WITHIN_S", PATIENCE_S)
    registry.delay_s = 0.2
    decoder, left = decoder_of(registry), [click(100 + index) for index in range(40)]
    reads = []
    while left:
        [ready] = asyncio.run(decoder.prepare([left]))
        reads.append(ready)
        left = left[ready:]
    assert reads == [16, 16, 8]


def test_no_read_waits_longer_than_its_limit_for_any_number_of_ids(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "ASK_FOR_S", 1.0)
    monkeypatch.setattr(schema_registry, "ANSWER_WITHIN_S", 2.0)
    registry.hanging = {f"/schemas/ids/{schema_id}" for schema_id in range(100, 1_000)}
    decoder = decoder_of(registry)
    ready = asyncio.run(decoder.prepare([[click(7), *map(click, range(100, 1_000))]]))
    assert ready == [1]
    assert len(registry.asked) < 900  # those that wait for one of the first answers are not asked for


def test_schemas_that_were_used_last_stay_in_memory(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "MOST_KNOWN", 2)
    for schema_id in range(1, 6):
        registry.register(schema_id, CLICK)
    served = SchemaRegistry(registry.url, kind=AVRO)
    for wanted, known in (([1, 2], [1, 2]), ([1], [2, 1]), ([3], [1, 3]), ([1, 4, 5], [1, 4, 5])):
        assert asyncio.run(served.fetch(wanted)) == {}
        assert sorted(served.known) == sorted(known)


def test_no_log_line_names_a_schema_or_the_registry_s_password(registry: Registry) -> None:
    lines = io.StringIO()
    url = registry.url.replace("//", "//ada:hunter2@")
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        configure("worker", logging.INFO, lines)
        logging.getLogger("stream_app").info("the log is open")
        decoded(topic_decoder("avro", TimeField("at", "s"), (), (), url), [click(987_654_321)])
    finally:
        logging.getLogger().handlers[:], level = before
        logging.getLogger().setLevel(level)
    assert registry.asked == ["/schemas/ids/987654321"]
    assert "the log is open" in lines.getvalue()
    assert "hunter2" not in lines.getvalue()
    assert "987654321" not in lines.getvalue()


def test_records_wait_for_a_registry_that_gives_nothing(registry: Registry) -> None:
    """Servers that are no registry do not know the path either. The logged line shows no byte of a record."""
    registry.missing = {"detail": "not found"}
    decoder, value = decoder_of(registry), b"\0Ann was here"
    with pytest.raises(OSError, match=r"gives no schemas \(HTTP 404\)") as told:
        decoded(decoder, [value])
    assert "\n" not in str(told.value)
    assert str(int.from_bytes(b"Ann ", "big")) not in str(told.value)


def test_unreachable_registry_is_one_line_without_its_password() -> None:
    with serving(Registry()) as registry:
        pass
    registry.url = registry.url.replace("//", "//ada:hunter2@")
    with pytest.raises(OSError, match="no answer") as told:
        decoded(decoder_of(registry), [record(7, CLICK, {"user": None, "at": MOMENT})])
    assert "\n" not in str(told.value)
    assert "127.0.0.1" in str(told.value)
    assert "hunter2" not in str(told.value)


DECIMAL = {"logicalType": "decimal", "precision": 12, "scale": 2}
PRICES = {
    "bytes": {"type": "bytes", **DECIMAL},
    "fixed": {"type": "fixed", "name": "Price", "size": 8, **DECIMAL},
    "whole": {"type": "bytes", "logicalType": "decimal", "precision": 30},
    "union": ["null", {"type": "fixed", "name": "Hash", "size": 8}, {"type": "bytes", **DECIMAL}],
}


def paid(kind: Any) -> dict[str, Any]:
    fields = [{"name": "at", "type": "long"}, {"name": "price", "type": kind}]
    return {"type": "record", "name": "Sale", "fields": fields}


def prices(registry: Registry, values: Sequence[bytes]) -> list[Any]:
    decoder = topic_decoder("avro", TimeField("at", "s"), (), ["price"], registry.url)
    return list(decoded(decoder, values).columns["price"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", PRICES)
def test_decimals_are_the_numbers_that_json_would_give(registry: Registry, kind: str) -> None:
    """The numbers have the same type and the same bits, so that they count in the same cells."""
    schema, json = paid(PRICES[kind]), NdjsonDecoder(TimeField("at", "s"), ["price"])
    registry.register(1, schema)
    decoder = topic_decoder("avro", TimeField("at", "s"), (), ["price"], registry.url)
    asyncio.run(decoder.prepare([[b"\0\0\0\0\1"]]))

    @examples(40)
    @given(st.lists(st.integers(-(10**12) + 1, 10**12 - 1), min_size=1, max_size=9))
    def check(digits: list[int]) -> None:
        written = [Decimal(number).scaleb(0 if kind == "whole" else -2) for number in digits]
        values = [record(1, schema, {"at": 1, "price": price}) for price in written]
        found = decoder.decode(values, []).columns["price"]
        lines = [b'{"at":1,"price":%s}' % f"{price:f}".encode() for price in written]
        expected = json.decode(lines).columns["price"]
        assert [(type(value), value) for value in found] == [(type(value), value) for value in expected]

    check()


def test_the_branch_of_a_union_that_wrote_the_bytes_decides(registry: Registry) -> None:
    schema = paid(PRICES["union"])
    registry.register(1, schema)
    some = [Decimal("0.08"), ("Hash", b"\0\0\0\0\0\0\0\x08"), None]
    assert prices(registry, [record(1, schema, {"at": 1, "price": one}) for one in some]) == [
        0.08,
        None,
        None,
    ]


@pytest.mark.parametrize(
    "kind",
    [
        "bytes",
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": -1},
        {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 10**9},
        {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 3},
        {"type": "bytes", "logicalType": "big-decimal"},
    ],
)
def test_bytes_that_are_not_decimals_stay_bytes_and_cost_no_record(registry: Registry, kind: Any) -> None:
    """By Avro's specification, a reader ignores an invalid logical type."""
    plain = {**kind, "logicalType": "none"} if isinstance(kind, dict) else kind
    registry.register(1, paid(kind))
    assert prices(registry, [record(1, paid(plain), {"at": 1, "price": b"\x08"})]) == [None]


def test_decimals_of_any_length_are_a_number_or_none(registry: Registry) -> None:
    """Whoever writes a record chooses its number of digits. This must not delay other records."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 1000, "scale": 2}
    registry.register(1, paid(kind))
    values = [b"\x7f" + b"\xff" * 400, b"\x80" + b"\0" * 400, b"\x01" * 417, b"\x01" * 100_000, b""]
    found = prices(registry, [record(1, paid("bytes"), {"at": 1, "price": value}) for value in values])
    assert found == [math.inf, -math.inf, None, None, None]
    assert Buckets("price", Fraction(0), Fraction(8), 4).places(found).tolist() == [3, 0, -1, -1, -1]


def test_a_time_may_be_a_decimal(registry: Registry) -> None:
    seconds = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 3}
    registry.register(1, of_time(seconds))
    far = b"\0\0\0\0\x01" + b"\xc8\x01" + b"\x7f" * 100
    values = [record(1, of_time(seconds), {"at": Decimal("1709208000.123")}), far]
    found = decoded(decoder_of(registry), values)
    assert found.columns["at"].tolist() == [MOMENT_US]
    assert refusals(found) == [(1, "bad_time")]


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Registry]:
    """Yield a registry over TLS whose certificate authority only this test knows."""
    write_certificates(tmp_path, "registry")
    with serving(Registry(), certificate=(tmp_path / "registry.pem", tmp_path / "registry.key")) as served:
        yield served


def test_a_registry_of_a_private_authority(private: Registry, tmp_path: Path) -> None:
    private.register(7, CLICK)
    value = record(7, CLICK, {"user": {"id": "ada"}, "at": MOMENT})
    field = TimeField("at", "s")
    decoder = topic_decoder("avro", field, (), (), private.url, tmp_path / "ca.pem")
    assert decoded(decoder, [value]).columns["at"].tolist() == [MOMENT_US]
    asyncio.run(SchemaRegistry(private.url, tmp_path / "ca.pem").reach())


@pytest.mark.parametrize("authority", [None, "of somebody else"])
def test_untrusted_registry_receives_nothing(
    private: Registry, tmp_path: Path, authority: str | None
) -> None:
    file = None
    if authority is not None:
        (tmp_path / authority).mkdir()
        write_certificates(tmp_path / authority, "nobody")
        file = tmp_path / authority / "ca.pem"
    url = private.url.replace("//", "//ada:hunter2@")
    with pytest.raises(ConnectionError) as told:
        asyncio.run(SchemaRegistry(url, file).reach())
    said = str(told.value)
    assert "its certificate is not trusted" in said
    assert said.endswith("name its authority in source.schema_registry.ssl.ca.location, or mend it")
    assert "\n" not in said
    assert "hunter2" not in said
    assert private.asked == []


def test_a_registry_under_another_name_is_not_trusted(private: Registry, tmp_path: Path) -> None:
    url = private.url.replace("127.0.0.1", "localhost")
    with pytest.raises(ConnectionError, match=r"not trusted .*localhost"):
        asyncio.run(SchemaRegistry(url, tmp_path / "ca.pem").reach())


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), (b"no certificate", "certificate")])
def test_an_authority_that_cannot_be_read_is_one_clear_line(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(OperatorError) as told:
        topic_decoder("avro", TimeField("at", "s"), (), (), "https://registry", file)
    assert str(told.value).startswith(f"source.schema_registry.ssl.ca.location: {file}: ")
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def read_over_a_broker(servers: str, registry: Registry, values: Sequence[bytes], mends: int) -> list[Any]:
    """Return the positions of the records of each read, those refused, and its end.

    Args: mends, the schema that the registry gets once a read has failed, as one must.
    """

    async def read() -> list[Any]:
        topic, found, position, failed = await Topic.create(servers), list[Any](), 0, False
        await topic.send(values)
        source = await KafkaSource.open(Cluster(servers), topic.name, "tests", decoder_of(registry))
        try:
            async with asyncio.timeout(PATIENCE_S):
                while position < len(values):
                    owned = {"0": position} if await source.owned() else {}
                    try:
                        batches = await source.read(owned, 0.1)
                    except OSError:
                        failed = True
                        registry.register(mends, CLICK)
                        continue
                    for batch in batches:
                        assert batch.start == position
                        position = batch.end
                        assert batch.columns["at"].tolist() == [MOMENT_US] * len(batch.positions)
                        refused = [(refusal.position, str(refusal.reason)) for refusal in batch.refused]
                        found.append((batch.positions.tolist(), refused, position))
        finally:
            await source.close()
        assert failed
        return found

    return asyncio.run(read())


@pytest.mark.kafka
def test_over_a_broker_no_record_is_lost_while_the_registry_is_unreachable(
    bootstrap_servers: str, registry: Registry
) -> None:
    registry.missing = {}  # a proxy's answer while its registry is unreachable
    found = read_over_a_broker(bootstrap_servers, registry, [click(7), b"not avro", click(7)], mends=7)
    assert found == [([0, 2], [(1, "undecodable")], 3)]


@pytest.mark.kafka
def test_over_a_broker_records_before_one_without_an_answer_are_read(
    bootstrap_servers: str, registry: Registry
) -> None:
    registry.register(7, CLICK)
    registry.answers["/schemas/ids/8"] = {}  # a proxy's answer while the registry is down
    values = [click(7), b"not avro", click(8), click(7), click(8)]
    found = read_over_a_broker(bootstrap_servers, registry, values, mends=8)
    assert found == [([0], [(1, "undecodable")], 2), ([2, 3, 4], [], 5)]
