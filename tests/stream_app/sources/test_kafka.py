"""A topic as a source, on a real broker: gaps, transactions, codecs, other topics, rebalances."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaAdminClient

from stream_app.core.incoming import RecordBatch
from stream_app.kafka.cluster import Cluster
from stream_app.ports import OperatorError
from stream_app.sources import kafka_group
from stream_app.sources.decode import TimeField
from stream_app.sources.kafka import KafkaSource
from stream_app.sources.kafka_group import ConsumerGroup
from stream_app.sources.topic_records import TIMESTAMP, topic_decoder
from tests.brokers import Topic, settings_untold
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.anyio]


@pytest.fixture
async def topic(bootstrap_servers: str) -> Topic:
    return await Topic.create(bootstrap_servers)


# By both protocols of groups: whether members have names, which the new one keeps over restarts.
PROTOCOLS = pytest.mark.parametrize("named", [False, True], ids=["classic", "consumer"])


def event(at: int) -> bytes:
    return b'{"at": %d, "user": {"id": 7}}' % at


@asynccontextmanager
async def opened(
    topic: Topic,
    group: str = "tests",
    field: str = "at",
    partitions: int = 1,
    others: Sequence[str] = (),
    names: Path | None = None,
) -> AsyncIterator[KafkaSource]:
    """Yield a source that owns the given number of partitions."""
    time = TimeField(field, "ms" if field == TIMESTAMP else "us")
    decoder = topic_decoder("json", time, others=others)
    source = await KafkaSource.open(Cluster(topic.servers), topic.name, group, decoder, names)
    try:
        await owns(source, partitions)
        yield source
    finally:
        await source.close()


async def owns(source: KafkaSource, partitions: int) -> None:
    """Read until the source owns the given number of partitions."""
    async with asyncio.timeout(PATIENCE_S):
        while len(await source.owned()) != partitions:
            await source.read({}, 0.05)


async def read_to(
    source: KafkaSource, end: int, start: int = 0, partition: str = "0"
) -> Sequence[RecordBatch]:
    """Read a partition until its position is ``end``."""
    batches: list[RecordBatch] = []
    async with asyncio.timeout(PATIENCE_S):
        while start != end:
            for batch in await source.read({partition: start}, 0.1):
                assert batch.start == start < batch.end
                start = batch.end
                batches.append(batch)
    return batches


def times(batches: Sequence[RecordBatch]) -> list[int]:
    return [time for batch in batches for time in batch.columns["at"].tolist()]


def places(batches: Sequence[RecordBatch]) -> list[int]:
    return [position for batch in batches for position in batch.positions.tolist()]


def reasons(batches: Sequence[RecordBatch]) -> list[tuple[int, str]]:
    return sorted((refusal.position, str(refusal.reason)) for batch in batches for refusal in batch.refused)


@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "snappy", "zstd"])
async def test_every_codec_is_read_from_any_position(topic: Topic, codec: str | None) -> None:
    await topic.send([event(at) for at in range(500)], compression_type=codec)
    async with opened(topic) as source:
        assert times(await read_to(source, 500)) == list(range(500))
        # Read again from the middle of a producer's batch, as after the store was set back.
        batches = await read_to(source, 500, start=123)
        assert places(batches) == times(batches) == list(range(123, 500))
        assert await source.read({"0": 500}, 0.05) == []


async def test_each_kind_of_uncountable_record_has_its_reason(topic: Topic) -> None:
    await topic.send([event(5), None, b"not json", b'{"at": null}', b"{}", None, event(6)])
    async with opened(topic) as source:
        batches = await read_to(source, 7)
    assert times(batches) == [5, 6]
    assert places(batches) == [0, 6]
    assert reasons(batches) == [
        (1, "tombstone"),
        (2, "undecodable"),
        (3, "null"),
        (4, "missing_field"),
        (5, "tombstone"),
    ]


async def test_one_read_returns_few_records_of_all_partitions(bootstrap_servers: str) -> None:
    topic = await Topic.create(bootstrap_servers, partitions=5)
    for partition in range(5):
        await topic.send([event(partition)] * 3, partition)
    async with opened(topic, partitions=5) as source:
        start, batches = dict.fromkeys(await source.owned(), 0), list[RecordBatch]()
        async with asyncio.timeout(PATIENCE_S):
            while len(batches) < 5:  # the client fetches again what was not counted
                batches = [*await source.read(start, 0.1)]
    assert sorted(batch.partition for batch in batches) == ["0", "1", "2", "3", "4"]
    assert sorted(times(batches)) == sorted([*range(5)] * 3)


async def test_one_read_takes_no_further_piece_after_large_records(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_app.sources.kafka.MOST_READ_BYTES", 20)
    topic = await Topic.create(bootstrap_servers, partitions=3)
    for partition in range(3):
        await topic.send([event(partition)] * 3, partition)
    async with opened(topic, partitions=3) as source:
        at, counted = dict.fromkeys(await source.owned(), 0), list[int]()
        async with asyncio.timeout(PATIENCE_S):
            while len(counted) < 9:
                batches = await source.read(at, 0.1)
                assert len(batches) <= 1
                at |= {batch.partition: batch.end for batch in batches}
                counted += times(batches)
    assert sorted(counted) == sorted([*range(3)] * 3)


async def test_a_record_may_be_counted_by_its_own_timestamp(topic: Topic) -> None:
    async with AIOKafkaProducer(bootstrap_servers=topic.servers) as producer:
        await producer.send_and_wait(topic.name, b"anything", timestamp_ms=1_700_000_000_123)
        await producer.send_and_wait(topic.name, None, key=b"k", timestamp_ms=1_700_000_000_124)
        await producer.send_and_wait(topic.name, b"else", timestamp_ms=1_700_000_000_125)
        await producer.send_and_wait(topic.name, event(1), timestamp_ms=1_700_000_000_126)
    async with opened(topic, field=TIMESTAMP) as source:
        [*batches] = await read_to(source, 4)
    assert [time for batch in batches for time in batch.columns[TIMESTAMP].tolist()] == [
        1_700_000_000_123_000,
        1_700_000_000_125_000,
        1_700_000_000_126_000,
    ]
    async with opened(topic, "readers of fields", TIMESTAMP, others=["user.id"]) as source:
        [*batches] = await read_to(source, 4)
    assert [user for batch in batches for user in batch.columns["user.id"].tolist()] == [None, None, 7]


async def test_only_committed_records_are_read_and_positions_pass_the_rest(topic: Topic) -> None:
    async with AIOKafkaProducer(bootstrap_servers=topic.servers, transactional_id=topic.name) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic.name, event(1))  # 0, marker 1
        await producer.begin_transaction()
        await producer.send_and_wait(topic.name, event(2))  # 2, marker 3
        await producer.abort_transaction()
        async with opened(topic) as source:
            batches = await read_to(source, 4)
            assert times(batches) == [1]
            await producer.begin_transaction()
            await producer.send_and_wait(topic.name, event(3))
            # The open transaction lies before the cut, so its bin waits until the transaction is over.
            assert await source.positions_at(["0"], [0, 1]) == {"0": [5, 5]}
            assert await source.read({"0": 4}, 0.5) == []
            await producer.commit_transaction()
            batches = await read_to(source, 6, start=4)
            assert times(batches) == [3]


async def test_a_log_of_aborted_records_alone_is_passed(topic: Topic) -> None:
    async with AIOKafkaProducer(bootstrap_servers=topic.servers, transactional_id=topic.name) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic.name, event(1))
        await producer.abort_transaction()
    async with opened(topic) as source:
        assert times(await read_to(source, 2)) == []


async def test_records_larger_than_a_fetch_are_read(bootstrap_servers: str) -> None:
    topic = await Topic.create(bootstrap_servers, max_message_bytes=str(8 << 20))
    large = b'{"pad": "%s", "at": 2}' % (b"x" * (5 << 20))
    await topic.send([event(1), large, event(3)], max_request_size=8 << 20)
    async with opened(topic) as source:
        assert times(await read_to(source, 3)) == [1, 2, 3]


@PROTOCOLS
async def test_a_new_partition_is_listed_at_once_and_owned_soon(
    tmp_path: Path, topic: Topic, named: bool
) -> None:
    async with opened(topic, names=tmp_path if named else None) as source:
        await topic.grow(3)
        assert await source.partitions() == ["0", "1", "2"]
        await owns(source, 3)
        await topic.send([event(4)], partition=2)
        assert times(await read_to(source, 1, partition="2")) == [4]


@PROTOCOLS
async def test_partitions_move_between_workers_and_nothing_of_the_old_owner_is_read(
    tmp_path: Path, bootstrap_servers: str, named: bool
) -> None:
    names = tmp_path if named else None
    topic = await Topic.create(bootstrap_servers, partitions=2)
    for partition in (0, 1):
        await topic.send([event(at) for at in range(10)], partition=partition)
    async with opened(topic, partitions=2, names=names) as first:
        decoder = topic_decoder("json", TimeField("at", "us"))
        second = await KafkaSource.open(Cluster(topic.servers), topic.name, "tests", decoder, names)
        async with asyncio.timeout(PATIENCE_S):
            while not (len(await first.owned()) == len(await second.owned()) == 1):
                for source in (first, second):
                    for batch in await source.read({"0": 0, "1": 0}, 0.05):
                        assert batch.partition in await source.owned()
        own, other = set(await first.owned()), set(await second.owned())
        assert own | other == {"0", "1"}
        assert own.isdisjoint(other)
        [mine] = own
        assert times(await read_to(first, 10, partition=mine)) == list(range(10))
        assert await first.read({other.pop(): 0}, 0.2) == []
        await second.close()
        await owns(first, 2)


@PROTOCOLS
async def test_the_others_soon_own_the_partitions_of_a_worker_that_leaves(
    tmp_path: Path, bootstrap_servers: str, named: bool
) -> None:
    """Until then nobody takes cuts. The fastest of three: on a busy machine each may take longer."""
    topic, fastest_s = await Topic.create(bootstrap_servers, partitions=2), PATIENCE_S
    names = tmp_path if named else None
    async with opened(topic, partitions=2, names=names) as stays:
        for _ in range(3):
            async with opened(topic, names=names) as leaves:
                await owns(stays, 1)
                began_s = monotonic()
                await leaves.close()
                await owns(stays, 2)
                fastest_s = min(fastest_s, monotonic() - began_s)
    assert fastest_s < 2.0


async def test_partitions_that_stay_with_their_worker_are_owned_all_the_time(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    """By the new protocol a worker that joins, or is killed and begins again, interrupts no others."""
    topic = await Topic.create(bootstrap_servers, partitions=2)
    async with opened(topic, partitions=2, names=tmp_path) as stays:
        fewest, kept = 2, await owned_until(stays, asyncio.create_task(_killed(topic, tmp_path)))
        assert fewest >= len(kept) == 1
        async with opened(topic, names=tmp_path) as again:
            assert await again.owned() != await stays.owned()
            assert set(await stays.owned()) == kept
            await stays._group.commit(stays._reader, {stays._place(one): 3 for one in kept})
            assert await topic.committed("tests") == {int(one): 3 for one in kept}


async def test_broker_that_does_not_know_the_new_protocol_is_refused_in_one_line(
    tmp_path: Path, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_group._HeartbeatRequest, "API_VERSION", 99)
    with pytest.raises(OperatorError, match=r"group_protocol: consumer needs brokers of Kafka 4\.0 or newer"):
        async with opened(topic, names=tmp_path):
            pass


async def owned_until(source: KafkaSource, task: asyncio.Task[None]) -> set[str]:
    """Return the partitions that a source owned all the time until a task has ended."""
    owned = set(await source.owned())
    while not task.done():
        owned &= set(await source.owned())
        await asyncio.sleep(0.005)
    task.result()
    return owned


async def _killed(topic: Topic, names: Path) -> None:
    """Own a partition, and end without a word, as after kill -9."""
    async with opened(topic, names=names) as source:
        group = source._group
        assert isinstance(group, ConsumerGroup)
        assert group._beating is not None
        group._beating.cancel()
        group._epoch = 0


async def test_a_position_outside_the_log_is_refused(topic: Topic) -> None:
    await topic.send([event(1)])
    async with opened(topic) as source:
        with pytest.raises(OperatorError, match=r"topic events-\w+: it no longer holds the records") as told:
            await read_to(source, 99, start=77)
        assert "77" not in str(told.value).replace(topic.name, "")
        # Later questions are answered again.
        assert times(await read_to(source, 1)) == [1]


@PROTOCOLS
async def test_a_topic_that_was_created_anew_is_another_topic(
    bootstrap_servers: str, tmp_path: Path, named: bool
) -> None:
    names = tmp_path if named else None
    topic = await Topic.create(bootstrap_servers, partitions=2)
    for partition in range(2):
        await topic.send([event(1), event(2)], partition)
    async with opened(topic, partitions=2, names=names) as first:
        before = first.facts
        await first.positions_at(["0"], [0])
        joins = asyncio.create_task(_until_refused_anew(topic, names))
        await owns(first, 1)
        [mine] = await first.owned()
        await read_to(first, 2, partition=mine)
        with pytest.raises(OperatorError, match="it was created again"):
            await until_refused(lambda: _read_owned(first))
        with pytest.raises(OperatorError, match="it was created again"):
            await until_refused(lambda: first.positions_at(["0"], [0]))
        await joins
    async with opened(topic, group="after", partitions=2, names=names) as source:
        assert source.facts.cluster_id == before.cluster_id
        assert source.facts.topic_id != before.topic_id


async def _until_refused_anew(topic: Topic, names: Path | None) -> None:
    """Read as one more member, create the topic anew, and read until it is refused."""
    async with opened(topic, names=names) as source:
        [mine] = await source.owned()
        await read_to(source, 2, partition=mine)
        await topic.delete()
        await topic.create_again(partitions=2)
        with pytest.raises(OperatorError, match="it was created again"):
            await until_refused(lambda: _read_owned(source))


async def _read_owned(source: KafkaSource) -> None:
    await source.read(dict.fromkeys(await source.owned(), 2), 0.05)


async def until_refused(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask until the source refuses to answer."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(OSError):  # the leader of the new topic is not known at once
                await ask()
            await asyncio.sleep(0.1)


async def test_where_a_partition_begins(topic: Topic) -> None:
    async with AIOKafkaProducer(bootstrap_servers=topic.servers) as producer:
        for second in range(5):
            await producer.send_and_wait(topic.name, event(1), timestamp_ms=1_700_000_000_000 + 1000 * second)
    async with opened(topic) as source:
        assert await source.first_position("0", None) == 0
        assert await source.first_position("0", 1_700_000_002_000_000) == 2
        assert await source.first_position("0", 1_700_000_002_000_001) == 3
        assert await source.first_position("0", 1_800_000_000_000_000) == 5
        await topic.delete_before(2)
        assert await source.first_position("0", None) == 2
        with pytest.raises(OperatorError, match="deleted before they were counted"):
            await read_to(source, 5)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_a_topic_whose_records_remove_one_another_is_refused(
    bootstrap_servers: str, policy: str
) -> None:
    topic = await Topic.create(bootstrap_servers, cleanup_policy=policy)
    words = (
        rf"^topic {topic.name}: it has cleanup\.policy=.*compact.*; use a topic with cleanup\.policy=delete$"
    )
    with pytest.raises(OperatorError, match=words):
        async with opened(topic):
            pass


async def test_a_topic_is_read_by_a_user_that_may_not_see_its_policy(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    await topic.send([event(1)])
    monkeypatch.setattr(KafkaAdminClient, "describe_configs", settings_untold)
    async with opened(topic) as source:
        assert source.facts.cleanup_policy == ""
        assert [batch.end for batch in await read_to(source, 1)] == [1]


async def test_a_missing_topic_is_refused_in_one_line(bootstrap_servers: str) -> None:
    decoder = topic_decoder("json", TimeField("at", "us"))
    with pytest.raises(OperatorError, match=r"topic nowhere: .* has none; create it"):
        await KafkaSource.open(Cluster(bootstrap_servers), "nowhere", "tests", decoder)


async def test_an_unreachable_broker_is_an_os_error() -> None:
    decoder = topic_decoder("json", TimeField("at", "us"))
    with pytest.raises(OSError, match=r"kafka: 127\.0\.0\.1:1: "):
        await KafkaSource.open(Cluster("127.0.0.1:1"), "any", "tests", decoder)


async def test_a_batch_that_decompresses_too_far_is_refused_and_later_ones_are_read(
    topic: Topic,
) -> None:
    await topic.send([event(1)])
    large = event(2)[:-1] + b', "x": "' + b"a" * (65 << 20) + b'"}'  # 65 kB as it is sent
    await topic.send([large], compression_type="gzip", max_request_size=1 << 27, max_batch_size=1 << 27)
    await topic.send([event(3)], compression_type="gzip")
    async with opened(topic) as source:
        batches = await read_to(source, 3)
    assert times(batches) == [1, 3]
    refused = [refusal for batch in batches for refusal in batch.refused]
    assert [(refusal.position, str(refusal.reason), refusal.record) for refusal in refused] == [
        (1, "unreadable_batch", b"")
    ]
