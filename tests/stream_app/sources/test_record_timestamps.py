"""Records that are timed by Kafka's own timestamp, beside fields of their values."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_app.config import load_text
from stream_app.core.incoming import Reason
from stream_app.sources.decode import TimeField
from stream_app.sources.topic_records import TIMESTAMP, TopicDecoder, topic_decoder
from tests.registry import Registry, record, serving
from tests.stream_app.sources.test_avro import CLICK, MOMENT

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


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as served:
        yield served


def columns(decoder: TopicDecoder, values: list[bytes], at_ms: list[int]) -> dict[str, list[object]]:
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
    assert columns(decoder, values, [5, 6, -1, 7]) == {
        TIMESTAMP: [5_000, 6_000, 7_000],
        "country": ["FR", None, "FR"],
        "cart.amount": [3, None, None],
        "refused": [(2, Reason.BAD_TIME)],
    }


def test_csv_fields_stand_beside_timestamps() -> None:
    decoder = topic_decoder("csv", TIME, ["country", "amount"], ["amount"])
    assert columns(decoder, [b"FR,3", b"FR", b"DE,"], [5, 6, 7]) == {
        TIMESTAMP: [5_000, 6_000, 7_000],
        "amount": ["3", None, None],
        "refused": [],
    }


def test_avro_fields_stand_beside_timestamps(registry: Registry) -> None:
    registry.register(7, CLICK)
    decoder = topic_decoder("avro", TIME, (), ["user.id"], registry.url)
    found = columns(decoder, [record(7, CLICK, {"user": {"id": "3"}, "at": MOMENT}), b"{}"], [5, 6])
    assert (found[TIMESTAMP], found["refused"]) == ([5_000, 6_000], [])
    assert found["user.id"] == ["3", None]


def test_another_stream_that_reads_fields_changes_no_count_of_a_stream_without_fields() -> None:
    values, at_ms = [b'{"country":"FR"}', b"\xff{", b"[1]", b"7"], [1, 2, 3, 4]
    alone = columns(topic_decoder("json", TIME), values, at_ms)
    beside = columns(topic_decoder("json", TIME, others=["country"]), values, at_ms)
    assert beside[TIMESTAMP] == alone[TIMESTAMP]
    assert beside["refused"] == alone["refused"] == []
