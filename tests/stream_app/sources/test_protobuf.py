"""Protobuf records with a schema registry: columns, refusals, bounds, registries without descriptors."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from stream_app.sources import protobuf
from stream_app.sources.decode import NdjsonDecoder, TimeField
from stream_app.sources.protobuf import MOST_BYTES, PROTOBUF, ProtobufDecoder, ProtobufSchema, read_schema
from stream_app.sources.protobuf_fields import message_reader
from stream_app.sources.schema_registry import SchemaRegistry
from stream_app.sources.topic_records import TopicDecoder, topic_decoder
from tests.examples import examples
from tests.registry import Registry, decoded, refusals

FIELD = descriptor_pb2.FieldDescriptorProto
MOMENT_US = 1_709_208_000_123_456


def member(message: Any, name: str, number: int, kind: int, type_name: str = "", **more: Any) -> None:
    added = message.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL)
    if type_name:
        added.type_name = type_name
    for key, value in more.items():
        setattr(added, key, value)


def click_file() -> descriptor_pb2.FileDescriptorProto:
    """A file with every type that is read, whose second message is nested in ``Outer``."""
    file = descriptor_pb2.FileDescriptorProto(name="click.proto", package="web", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    plan = file.enum_type.add(name="Plan")
    plan.value.add(name="FREE", number=0)
    plan.value.add(name="PAID", number=3)
    click = file.message_type.add(name="Click")
    user = click.nested_type.add(name="User")
    member(user, "id", 1, FIELD.TYPE_STRING)
    member(user, "age", 2, FIELD.TYPE_INT32)
    member(click, "at", 1, FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    member(click, "user", 2, FIELD.TYPE_MESSAGE, ".web.Click.User")
    member(click, "price", 3, FIELD.TYPE_DOUBLE)
    member(click, "plan", 4, FIELD.TYPE_ENUM, ".web.Plan")
    member(click, "paid", 5, FIELD.TYPE_BOOL)
    member(click, "raw", 6, FIELD.TYPE_BYTES)
    member(click, "size", 7, FIELD.TYPE_MESSAGE, ".google.protobuf.Int64Value")
    entry = click.nested_type.add(name="LabelsEntry")
    entry.options.map_entry = True
    member(entry, "key", 1, FIELD.TYPE_STRING)
    member(entry, "value", 2, FIELD.TYPE_STRING)
    member(click, "labels", 8, FIELD.TYPE_MESSAGE, ".web.Click.LabelsEntry", label=FIELD.LABEL_REPEATED)
    people = click.nested_type.add(name="PeopleEntry")
    people.options.map_entry = True
    member(people, "key", 1, FIELD.TYPE_STRING)
    member(people, "value", 2, FIELD.TYPE_MESSAGE, ".web.Click.User")
    member(click, "people", 9, FIELD.TYPE_MESSAGE, ".web.Click.PeopleEntry", label=FIELD.LABEL_REPEATED)
    member(click, "tags", 10, FIELD.TYPE_STRING, label=FIELD.LABEL_REPEATED)
    click.oneof_decl.add(name="_note")
    member(click, "note", 11, FIELD.TYPE_STRING, oneof_index=0, proto3_optional=True)
    member(click, "at_ms", 12, FIELD.TYPE_INT64)
    member(click, "at_text", 13, FIELD.TYPE_STRING)
    member(click, "next", 14, FIELD.TYPE_MESSAGE, ".web.Click")
    member(click, "weight", 15, FIELD.TYPE_FLOAT)
    outer = file.message_type.add(name="Outer")
    outer.nested_type.add(name="Unused")
    inner = outer.nested_type.add(name="Inner")
    member(inner, "at", 5, FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    return file


def message_class(file: descriptor_pb2.FileDescriptorProto, name: str) -> Any:
    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(name))


Click = message_class(click_file(), "web.Click")
Inner = message_class(click_file(), "web.Outer.Inner")
OTHERS = (
    "user.id", "user.age", "price", "plan", "paid", "raw", "size", "labels.colour", "people.boss.age", "tags",
    "note", "next.user.id", "at", "unknown", "unknown.deep", "price.deep", "labels", "people.boss",
)  # fmt: skip


def serialized(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def register(registry: Registry, schema_id: int, text: str, references: Sequence[Any] = ()) -> None:
    answer = {"schema": text, "schemaType": "PROTOBUF", "references": list(references)}
    registry.answers[f"/schemas/ids/{schema_id}?format=serialized"] = answer


def framed(message: Any, schema_id: int = 7, indexes: bytes = b"\0") -> bytes:
    body = message if isinstance(message, bytes) else message.SerializeToString()
    return b"\0" + schema_id.to_bytes(4, "big") + indexes + body


def decoder_of(
    registry: Registry, others: Sequence[str] = (), field: str = "at", format: Any = "s"
) -> TopicDecoder:
    return topic_decoder("protobuf", TimeField(field, format), (), others, registry.url)


def moment(us: int = MOMENT_US) -> dict[str, int]:
    return {"seconds": us // 1_000_000, "nanos": us % 1_000_000 * 1_000 + 999}


def test_configured_fields_become_columns_as_their_types_say(registry: Registry) -> None:
    register(registry, 7, serialized(click_file()))
    full = Click(at=moment(), price=0.1, plan=3, paid=True, raw=b"x", tags=["a"], note="")
    full.user.id, full.user.age, full.size.value = "ada", 36, 0
    full.labels["colour"], full.people["boss"].age, full.next.user.id = "red", 50, "bob"
    found = decoded(decoder_of(registry, OTHERS), [framed(full), framed(Click(at=moment(), plan=9))])
    assert found.columns["at"].tolist() == [MOMENT_US] * 2, "nanoseconds are cut off"
    rows = {path: found.columns[path].tolist() for path in OTHERS if path != "at"}
    assert rows == {
        "user.id": ["ada", None],
        "user.age": [36, None],
        "price": [0.1, 0.0],  # without presence, a default is a value
        "plan": ["PAID", 9],
        "paid": [True, False],
        "raw": [None, None],
        "size": [0, None],
        "labels.colour": ["red", None],
        "people.boss.age": [50, None],
        "tags": [None, None],
        "note": ["", None],
        "next.user.id": ["bob", None],
        "unknown": [None, None],
        "unknown.deep": [None, None],
        "price.deep": [None, None],
        "labels": [None, None],
        "people.boss": [None, None],
    }
    assert len(registry.asked) == 1


def test_a_record_names_its_message_by_indexes(registry: Registry) -> None:
    register(registry, 7, serialized(click_file()))
    values = [
        framed(Click(at=moment())),
        framed(Inner(at=moment()), indexes=bytes([4, 2, 2])),  # the second message's second one
        framed(Click(at=moment()), indexes=bytes([2, 0])),  # a count of one, then 0
        framed(Click(at=moment()), indexes=bytes([2, 8])),  # a message that is not there
        framed(b"", indexes=bytes([1])),  # a count of -1
        framed(b"", indexes=b"\xff" * 6),
        framed(b"", indexes=b""),
        b"\0\0\0\0\7",
        b"\1\0\0\0\7\0",
    ]
    found = decoded(decoder_of(registry), values)
    assert found.kept.tolist() == [0, 1, 2]
    assert refusals(found) == [(index, "undecodable") for index in range(3, len(values))]


@pytest.mark.parametrize(
    ("field", "format", "message", "expected"),
    [
        ("at_ms", "ms", Click(at_ms=1_500), 1_500_000),
        ("at_ms", "s", Click(), 0),
        ("at_text", "iso8601", Click(at_text="1970-01-01T00:00:02Z"), 2_000_000),
        ("price", "s", Click(price=1.5), 1_500_000),
        ("size", "s", Click(size={"value": 3}), 3_000_000),
        ("at", "iso8601", Click(at=moment(5)), 5),
        ("at", "s", Click(), "null"),
        ("at", "s", Click(at={"seconds": 1 << 60}), "bad_time"),
        ("at", "s", Click(at={"nanos": -1}), "bad_time"),
        ("at_text", "s", Click(at_text="5"), 5_000_000),
        ("at_text", "s", Click(at_text="five"), "bad_time"),
        ("at_ms", "iso8601", Click(at_ms=5), "bad_time"),
        ("paid", "s", Click(paid=True), "bad_time"),
        ("user", "s", Click(user=Click.User(id="x")), "bad_time"),
        ("tags", "s", Click(tags=["x"]), "bad_time"),
        ("nothing", "s", Click(), "missing_field"),
        ("user.id.deeper", "s", Click(user=Click.User(id="x")), "missing_field"),
    ],
)
def test_times(registry: Registry, field: str, format: str, message: Any, expected: int | str) -> None:
    register(registry, 7, serialized(click_file()))
    found = decoded(decoder_of(registry, (), field, format), [framed(message)])
    if isinstance(expected, int):
        assert found.columns[field].tolist() == [expected]
    else:
        assert refusals(found) == [(0, expected)]


def test_bytes_that_are_no_message_are_undecodable_one_by_one(registry: Registry) -> None:
    register(registry, 7, serialized(click_file()))
    good = framed(Click(at=moment()))
    bad_text = framed(Click(at=moment()).SerializeToString() + bytes([18, 3, 10, 1, 0xFF]))  # user.id
    values = [good, good[:-1], bad_text, framed(b"\xff" * 9), good]
    found = decoded(decoder_of(registry, ["user.id"]), values)
    assert found.kept.tolist() == [0, 2, 4]
    assert found.columns["user.id"].tolist()[1] is None
    assert [index for index, _ in refusals(found)] == [1, 3]


def test_no_field_that_others_read_changes_a_record(registry: Registry) -> None:
    """A damaged field has no value, whoever reads it; every other field has its own."""
    register(registry, 7, serialized(click_file()))
    good = Click(at=moment(), price=1.5)
    good.user.id = "ada"
    whole = good.SerializeToString()
    damaged = [
        whole + bytes([18, 3, 10, 1, 0xFF]),  # user.id is not UTF-8
        whole + bytes([18, 1, 0xFF]),  # user is no message
        whole + bytes([10, 1, 0xFF]),  # at is no message
        whole + bytes([98]),  # the record ends within at_ms
    ]
    values = [framed(body) for body in (whole, *damaged)]
    paths = ["user.id", "price", "user.age"]
    together = decoded(decoder_of(registry, paths), values)
    assert together.kept.tolist() == [0, 1, 2]
    assert refusals(together) == [(3, "bad_time"), (4, "undecodable")]
    assert together.columns["price"].tolist() == [1.5] * 3
    assert together.columns["user.id"].tolist() == ["ada", None, None]
    for path in paths:
        alone = decoded(decoder_of(registry, [path]), values)
        assert (alone.kept.tolist(), alone.refused) == (together.kept.tolist(), together.refused)
        assert alone.columns[path].tolist() == together.columns[path].tolist()


def test_the_longest_key_of_a_map_counts(registry: Registry) -> None:
    register(registry, 7, serialized(click_file()))
    flat, short = Click(at=moment()), Click(at=moment())
    flat.labels["http.method"], flat.labels["http"] = "GET", "x"
    short.people["boss.of.all"].age, short.people["boss"].age = 50, 7
    found = decoded(
        decoder_of(registry, ["labels.http.method", "people.boss.of.all.age", "people.boss.age"]),
        [framed(flat), framed(short)],
    )
    assert found.columns["labels.http.method"].tolist() == ["GET", None]
    assert found.columns["people.boss.of.all.age"].tolist() == [None, 50]
    assert found.columns["people.boss.age"].tolist() == [None, 7]


def test_what_a_path_does_not_read_is_not_decoded(registry: Registry) -> None:
    """A record of a megabyte delays no cut, whatever it holds; a larger one is refused."""
    register(registry, 7, serialized(click_file()))
    fill = MOST_BYTES - 100
    hostile = [
        bytes([0x72, 0]) * (fill // 2),  # empty messages, which are one when a path reads them
        bytes([0x4A, 0]) * (fill // 2),  # entries of a map
        bytes([0x52, 0]) * (fill // 2),  # a list that no path reads
        bytes([0x78, 0]) * (fill // 2),  # fields that the schema does not have
    ]
    decoder = decoder_of(registry, ["people.boss.age", "next.user.id"])
    values = [framed(Click(at=moment()).SerializeToString() + filling) for filling in hostile]
    decoded(decoder, values[:1])
    started = time.process_time()
    assert decoded(decoder, values).kept.tolist() == [0, 1, 2, 3]
    spent = time.process_time() - started
    whole = time.process_time()
    for value in values:
        Click.FromString(value[6:])
    assert spent < 10 * (time.process_time() - whole), "more than decoding all of it would take"
    too_long = framed(b"\0" * MOST_BYTES)
    assert refusals(decoded(decoder, [too_long])) == [(0, "undecodable")]
    nested = framed(bytes([0x72, 0x80, 0x80, 0x01]) * 1_000)
    assert refusals(decoded(decoder, [nested])) == [(0, "undecodable")]


@examples(60)
@given(st.data())
def test_values_agree_with_the_json_that_protobuf_itself_writes(data: st.DataObject) -> None:
    message = Click(
        at=moment(data.draw(st.integers(0, 4_000_000_000_000_000))),
        price=data.draw(st.floats(allow_nan=False, allow_infinity=False)),
        weight=data.draw(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)),
        plan=data.draw(st.sampled_from([0, 3])),
        paid=data.draw(st.booleans()),
        tags=data.draw(st.lists(st.text(max_size=3), max_size=3)),
    )
    message.user.id = data.draw(st.text(max_size=5))
    message.user.age = data.draw(st.integers(-(1 << 31), (1 << 31) - 1))
    for key in data.draw(st.sets(st.sampled_from(["colour", "x", ""]))):
        message.labels[key] = data.draw(st.text(max_size=3))
    written = json_format.MessageToJson(
        message, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )
    paths = ["user.id", "user.age", "price", "weight", "plan", "paid", "labels.colour"]
    as_json = NdjsonDecoder(TimeField("at", "iso8601"), paths).decode([written.encode()])
    known: SchemaRegistry[ProtobufSchema] = SchemaRegistry("http://unused", kind=PROTOBUF)
    known.known[7] = read_schema(serialized(click_file()), [])
    found = ProtobufDecoder(known, TimeField("at", "s"), paths).decode([framed(message)], [])
    for path in ("at", *paths):
        assert found.columns[path].tolist() == as_json.columns[path].tolist(), path


@pytest.mark.parametrize("kind", [FIELD.TYPE_STRING, FIELD.TYPE_INT64, None])
@pytest.mark.parametrize("field", ["at", "other"])
def test_another_message_of_a_timestamps_name_decides_about_its_own_record_only(
    registry: Registry, kind: int | None, field: str
) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="own", package="google.protobuf", syntax="proto2")
    own = file.message_type.add(name="Event")
    member(own, field, 1, FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    member(own, "ms", 2, FIELD.TYPE_INT64)
    fake = file.message_type.add(name="Timestamp")
    if kind is not None:
        member(fake, "seconds", 1, kind)
    register(registry, 7, serialized(file))
    register(registry, 8, serialized(click_file()))
    values = [framed(bytes([10, 0, 16, 5])), framed(Click(at=moment(), at_ms=5), 8)]
    if field == "at":
        found = decoded(decoder_of(registry), values)
        assert refusals(found) == [(0, "bad_time")]
    else:
        found = decoded(decoder_of(registry, ["other"], "ms", "ms"), values[:1])
        assert found.columns["other"].tolist() == [None]


def test_a_records_indexes_are_looked_up_and_not_searched(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a schema of thousands of messages, tiny records would else delay a cut by seconds."""
    file = descriptor_pb2.FileDescriptorProto(name="many", package="web", syntax="proto3")
    for number in range(500):
        member(file.message_type.add(name=f"M{number}"), "at", 1, FIELD.TYPE_INT64)
    register(registry, 7, serialized(file))
    made: list[str] = []

    def counted(message: Any, paths: Sequence[str]) -> Any:
        made.append(message.full_name)
        return message_reader(message, paths)

    monkeypatch.setattr(protobuf, "message_reader", counted)
    values = [framed(bytes([8, 1]), indexes=bytes([2, 20]))] * 50 + [
        framed(b"", indexes=b"\x02\xd0\x0f")
    ] * 50
    decoder = decoder_of(registry)
    asyncio.run(decoder.prepare([values]))
    monkeypatch.setattr(protobuf, "_messages", None)
    found = decoder.decode(values, [])
    assert found.columns["at"].tolist() == [1_000_000] * 50
    assert [str(reason) for _, reason in found.refused] == ["undecodable"] * 50
    assert made == ["web.M10"]


def test_imports_are_fetched_and_unnamed_ones_are_read_as_bytes(registry: Registry) -> None:
    shared = descriptor_pb2.FileDescriptorProto(name="any", package="shared", syntax="proto3")
    member(shared.message_type.add(name="User"), "id", 1, FIELD.TYPE_STRING)
    file = descriptor_pb2.FileDescriptorProto(name="default", package="web", syntax="proto3")
    file.dependency.extend(["shared/user.proto", "google/type/date.proto", "google/protobuf/timestamp.proto"])
    event = file.message_type.add(name="Event")
    member(event, "user", 1, FIELD.TYPE_MESSAGE, ".shared.User")
    member(event, "day", 2, FIELD.TYPE_MESSAGE, ".google.type.Date")
    member(event, "at", 3, FIELD.TYPE_MESSAGE, "google.protobuf.Timestamp")  # a relative name
    reference = {"name": "shared/user.proto", "subject": "users", "version": 2}
    register(registry, 7, serialized(file), [reference])
    path = "/subjects/users/versions/2?format=serialized"
    registry.answers[path] = {"schema": serialized(shared), "schemaType": "PROTOBUF"}
    body = bytes([10, 5, 10, 3]) + b"ada" + bytes([18, 2, 8, 1, 26, 2, 8, 9])
    found = decoded(decoder_of(registry, ["user.id", "day", "day.year"]), [framed(body)])
    assert (found.columns["at"].tolist(), found.columns["user.id"].tolist()) == ([9_000_000], ["ada"])
    assert found.columns["day"].tolist() == found.columns["day.year"].tolist() == [None]
    assert path in registry.asked


def test_a_registry_that_gives_text_makes_records_wait_and_refuses_none(registry: Registry) -> None:
    register(registry, 7, 'syntax = "proto3"; message Click { int64 at = 1; }')
    decoder = decoder_of(registry)
    with pytest.raises(OSError, match=r"gives Protobuf schemas as text.*records wait"):
        asyncio.run(decoder.prepare([[framed(Click(at=moment()))]]))
    register(registry, 7, serialized(click_file()))
    assert decoded(decoder, [framed(Click(at=moment()))]).kept.tolist() == [0]


@pytest.mark.parametrize("answer", [{"schema": '"long"'}, {"schema": "{}", "schemaType": "JSON"}, None, "!"])
def test_schemas_of_another_kind_make_their_records_undecodable(registry: Registry, answer: Any) -> None:
    path = "/schemas/ids/7?format=serialized"
    if answer == "!":  # descriptors that do not fit together
        broken = descriptor_pb2.FileDescriptorProto(name="x")
        member(broken.message_type.add(name="M"), "at", 1, FIELD.TYPE_MESSAGE, ".web.Nowhere")
        answer = {"schema": serialized(broken), "schemaType": "PROTOBUF"}
    if answer is not None:
        registry.answers[path] = answer
    expected = "unknown_schema" if answer is None else "undecodable"
    assert refusals(decoded(decoder_of(registry), [framed(Click(at=moment()))])) == [(0, expected)]


def test_json_with_a_schema_is_read_without_it() -> None:
    decoder = topic_decoder("json_schema", TimeField("at", "s"), (), ["user"])
    body = b'{"at": 2, "user": "ada"}'
    found = decoded(decoder, [b"\0\0\0\0\7" + body, body, b"\0\0\0\0\0" + body, b"\0\0\0\0\7{"])
    assert found.columns["at"].tolist() == [2_000_000]
    assert found.columns["user"].tolist() == ["ada"]
    assert refusals(found) == [(index, "undecodable") for index in (1, 2, 3)]
