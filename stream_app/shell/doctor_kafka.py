"""The cluster, as ``stream-app doctor`` sees it: topics, their settings, whether their events can be read."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from stream_app.config import Settings, StreamSettings, TopicSettings
from stream_app.kafka_cluster import Cluster, TopicFacts, answers, topic_facts
from stream_app.ports import OperatorError
from stream_app.shell.findings import Finding
from stream_app.sources.decode import TimeField
from stream_app.sources.topic_records import topic_decoder

SAMPLE_RECORDS = 100
AHEAD_S = 5.0
_READ_MS = 5_000


async def kafka_findings(settings: Settings) -> list[Finding]:
    """Return what is found of the cluster and of every topic that is read."""
    if settings.kafka is None:
        return []
    cluster = Cluster(settings.kafka.bootstrap_servers, settings.kafka.security)
    found = []
    topics: dict[str, TopicFacts | None] = {}
    try:
        for stream in settings.streams:
            if isinstance(stream.source, TopicSettings):
                if stream.source.topic not in topics:
                    topics[stream.source.topic] = await topic_facts(cluster, stream.source.topic)
                facts = topics[stream.source.topic]
                found += [finding async for finding in _topic(cluster, stream, stream.source, facts)]
        for output in settings.outputs:
            found.append(_output(output.topic, await topic_facts(cluster, output.topic)))
    except (OSError, OperatorError) as failure:
        found.append(
            Finding("kafka.bootstrap_servers", "fail", f"{failure}; correct it, or start the broker")
        )
        return found
    return [Finding("kafka.bootstrap_servers", "ok", f"{cluster.bootstrap_servers} answers"), *found]


async def _topic(
    cluster: Cluster, stream: StreamSettings, source: TopicSettings, facts: TopicFacts | None
) -> AsyncIterator[Finding]:
    what = f"streams.{stream.name}.source.topic"
    if facts is None:
        yield Finding(
            what, "fail", f"{source.topic} does not exist; create it (stream-app produce --partitions)"
        )
        return
    yield Finding(what, "ok", f"{source.topic} has {facts.partitions} partition(s)")
    if "compact" in facts.cleanup_policy:
        said = "is compacted: an event whose key comes again may be gone before it is counted; set delete"
        yield Finding(what, "warn", f"{source.topic} {said}")
    for finding in _sampled(what, stream, source, await _newest(cluster, source.topic, facts)):
        yield finding


def _output(topic: str, facts: TopicFacts | None) -> Finding:
    """Return whether a topic that takes releases keeps each of them for ever."""
    if facts is None:
        return Finding("outputs", "ok", f"{topic} does not exist yet; the first start creates it")
    if facts.cleanup_policy != "compact" or facts.partitions != 1:
        said = f"{topic} must be compacted, and nothing else, and have one partition; name another topic"
        return Finding("outputs", "fail", f"{said}: what it forgets could be released a second time")
    return Finding("outputs", "ok", f"{topic} is compacted and has one partition")


def _sampled(
    what: str, stream: StreamSettings, source: TopicSettings, records: Sequence[ConsumerRecord]
) -> Iterator[Finding]:
    """Yield what the newest records look like, in words: how many are good is a count of people's events."""
    if not records:
        yield Finding(what, "ok", f"{source.topic} has no events yet")
        return
    field = TimeField(stream.time.field, stream.time.format)
    decoder = topic_decoder(source.format, field, source.columns)
    decoded = decoder.decode([record.value for record in records], [record.timestamp for record in records])
    if not len(decoded.kept):
        said = (
            f"no event of a sample has a time in {field.path} ({field.format}); correct time.field or format"
        )
        yield Finding(what, "fail", said)
    elif decoded.refused:
        yield Finding(what, "warn", "some events of a sample cannot be decoded; see the dead letters")
    else:
        yield Finding(what, "ok", "every event of a sample can be decoded")
    ahead_s = max(record.timestamp for record in records) / 1e3 - time.time()
    if ahead_s > AHEAD_S:
        said = f"records carry times {ahead_s:.0f} s ahead of this machine's clock; run an NTP client on all"
        yield Finding(f"{source.topic} clock", "warn", said)


async def _newest(cluster: Cluster, topic: str, facts: TopicFacts) -> list[ConsumerRecord]:
    """Return some of the newest committed records of each partition, of those that have a value."""
    consumer = AIOKafkaConsumer(isolation_level="read_committed", **cluster.client())
    with answers(cluster):
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, number) for number in range(facts.partitions)]
            each = -(-SAMPLE_RECORDS // len(partitions))
            consumer.assign(partitions)
            first = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
            for partition in partitions:
                consumer.seek(partition, max(first[partition], ends[partition] - each))
            if not any(ends[partition] > first[partition] for partition in partitions):
                return []
            fetched = await consumer.getmany(timeout_ms=_READ_MS, max_records=SAMPLE_RECORDS)
        finally:
            await consumer.stop()
    return [record for records in fetched.values() for record in records if record.value is not None]
