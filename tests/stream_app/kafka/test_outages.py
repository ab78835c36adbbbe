"""A client that stops during an outage raises its own task's cancellation, which must not end a loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from aiokafka import TopicPartition

from stream_app.kafka import cluster as kafka_cluster
from stream_app.kafka.cluster import Cluster, answered, translating_errors
from stream_app.kafka.topics import records_of
from stream_app.sources.decode import TimeField
from stream_app.sources.kafka import KafkaSource
from stream_app.sources.topic_records import topic_decoder
from tests.brokers import Topic, lose_broker
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.anyio
KAFKA = Cluster("127.0.0.1:1")


@pytest.fixture
async def topic(bootstrap_servers: str) -> Topic:
    topic = await Topic.create(bootstrap_servers)
    await topic.send([b'{"at": 1}'])
    return topic


@pytest.mark.kafka
async def test_reading_all_records_says_that_no_answer_came(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_cluster, "LONGEST_ANSWER_S", 1.2)
    beyond = records_of(Cluster(topic.servers), TopicPartition(topic.name, 0), 0, 2)
    reading = asyncio.create_task(beyond)
    await asyncio.sleep(0.6)
    lose_broker(monkeypatch)
    with pytest.raises(TimeoutError, match="no answer for"):
        await reading


@pytest.mark.kafka
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_source_closes_all_its_clients(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    decoder = topic_decoder("json", TimeField("at", "us"))
    source = await KafkaSource.open(Cluster(topic.servers), topic.name, "tests", decoder)
    async with asyncio.timeout(PATIENCE_S):
        while not await source.read({"0": 0}, 0.05):
            pass
    lose_broker(monkeypatch)
    await asyncio.sleep(0.6)  # longer than a fetch that has nothing to return

    async def close_at_end() -> None:
        try:
            await asyncio.sleep(0 if not is_cancelled else PATIENCE_S)
        finally:
            await source.close()

    closing = asyncio.create_task(close_at_end())
    await asyncio.sleep(0)
    if is_cancelled:
        closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing
    assert closing.cancelled() == is_cancelled
    assert source._admin._closed
    clients = source._reader._client, source._asker._client
    assert not any(conn.connected() for client in clients for conn in client._conns.values())


async def test_only_the_callers_own_cancellation_goes_on() -> None:
    async def cancelled_inside() -> None:
        raise asyncio.CancelledError

    with pytest.raises(ConnectionError, match=r"kafka: 127\.0\.0\.1:1: .*, see that it runs"):
        await answered(KAFKA, "clicks", cancelled_inside())
    with (
        pytest.raises(ConnectionError, match=r"kafka: 127\.0\.0\.1:1: .*, see that it runs"),
        translating_errors(KAFKA),
    ):
        await cancelled_inside()

    async def waits() -> None:
        with translating_errors(KAFKA):
            await answered(KAFKA, "clicks", asyncio.Event().wait())

    waiting = asyncio.create_task(waits())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
