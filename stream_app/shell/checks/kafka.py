"""Checks of ``stream-app doctor`` on Kafka: topics, their settings, and whether their events can be read."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from aiokafka import ConsumerRecord
from msgspec import structs

from dphist.arrays import Int64Array
from stream_app.config import Settings, StreamSettings, TopicSettings
from stream_app.core.counting.count_rows import FIELDS as ROW_FIELDS
from stream_app.core.counting.count_rows import read_rows
from stream_app.core.incoming import Reason, Refusal, refused_because
from stream_app.core.records import PartitionState
from stream_app.core.segments.names import base_of
from stream_app.kafka.cluster import Cluster, reach
from stream_app.kafka.topics import TopicFacts, check_keeps_records, topic_facts
from stream_app.ports import OperatorError
from stream_app.shell.samples.findings import StreamSample, decoding_finding, findings
from stream_app.shell.samples.of_topic import lacks_records, newest_records
from stream_app.sinks.dead_letter_topic import check_topic
from stream_app.sources.decode import Decoded
from stream_app.sources.kafka_group import LACKS_RECORDS
from stream_app.sources.schema_registry import SchemaRegistry
from stream_app.sources.times import TimeFormat
from stream_app.wiring.checks import Finding
from stream_app.wiring.event_logs import decoder_of
from stream_app.wiring.topics import cluster_of

AHEAD_S = 5.0
Positions = Mapping[str, Mapping[str, int]]
NONE: Positions = MappingProxyType({})


async def kafka_findings(settings: Settings, counted: Positions = NONE) -> list[Finding]:
    """Return findings about the clusters and every topic that is read or written.

    Args: counted, up to where the store has counted each stream, by its generation's name. SECRET.
    """
    clusters = {} if settings.kafka is None else settings.kafka.clusters
    return [finding for name in clusters for finding in await _cluster_findings(settings, name, counted)]


async def _cluster_findings(settings: Settings, name: str, counted: Positions) -> list[Finding]:
    cluster = cluster_of(settings, name)
    found = []
    topics: dict[str, TopicFacts | None] = {}
    try:
        await reach(cluster)
        for stream in settings.streams:
            if isinstance(stream.source, TopicSettings) and stream.source.cluster == name:
                if stream.source.topic not in topics:
                    topics[stream.source.topic] = await topic_facts(cluster, stream.source.topic)
                facts = topics[stream.source.topic]
                found += [finding async for finding in _topic(cluster, stream, stream.source, facts)]
                own = [at for of, at in counted.items() if base_of(of) == stream.name]
                if facts is not None and any(
                    [await lacks_records(cluster, stream.source.topic, at) for at in own]
                ):
                    what = f"streams.{stream.name}.source.topic"
                    found.append(Finding(what, "fail", f"{stream.source.topic}: {LACKS_RECORDS}"))
        for output in settings.outputs:
            if output.cluster == name:
                found.append(_output_topic(output.topic, await topic_facts(cluster, output.topic)))
        if (alerts := settings.alerts.topic) is not None and settings.alerts.cluster == name:
            found.append(_alerts_topic(alerts, await topic_facts(cluster, alerts)))
        letters = settings.dead_letters
        if letters.topic is not None and letters.cluster == name:
            facts = await topic_facts(cluster, letters.topic)
            found.append(_letters_topic(letters.topic, facts, letters.keep_us))
    except (OSError, OperatorError) as failure:
        what = f"{cluster.where}.bootstrap_servers"
        return [*found, Finding(what, "fail", f"{failure}; correct it, or start the broker")]
    answers = Finding(f"{cluster.where}.bootstrap_servers", "ok", f"{cluster.bootstrap_servers} answers")
    return [answers, *found]


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
    try:
        decoder = decoder_of(source, [stream])
    except OperatorError as refusal:
        yield Finding(f"streams.{stream.name}.source.format", "fail", str(refusal))
        return
    if source.schema_registry is not None:
        found = await _registry(stream.name, source.schema_registry, source.schema_registry_ca)
        yield found
        if found.state == "fail":
            return
    try:
        check_keeps_records(source.topic, facts)
    except OperatorError as refusal:
        yield Finding(what, "fail", str(refusal))
    if not facts.cleanup_policy:
        said = "settings may not be described by this user; check yourself that it has cleanup.policy=delete"
        yield Finding(what, "warn", f"{source.topic}: its {said}")
    records = await newest_records(cluster, source.topic, facts)
    if not records:
        yield Finding(what, "ok", f"{source.topic} has no events yet")
        return
    try:
        [ready] = await decoder.prepare([[record.value for record in records]])
    except OSError as failure:
        yield Finding(f"streams.{stream.name}.source.format", "fail", str(failure))
        return
    records = records[:ready]
    decoded = decoder.decode([record.value for record in records], [record.timestamp for record in records])
    of_rows = stream.declared.source.origins > 0
    sample = _sample(stream, source, records, decoded)
    for finding in _rows(stream, sample) if of_rows else findings(stream, sample):
        yield finding
    ahead_s = max(record.timestamp for record in records) / 1e3 - time.time()
    if ahead_s > AHEAD_S:
        said = f"records carry times {ahead_s:.0f} s ahead of this machine's clock; run an NTP client on all"
        yield Finding(f"{source.topic} clock", "warn", said)


async def _registry(stream: str, url: str, authority: Path | None) -> Finding:
    what = f"streams.{stream}.source.schema_registry"
    try:
        await SchemaRegistry(url, authority).reach()
    except OSError as failure:
        return Finding(what, "fail", str(failure))
    return Finding(what, "ok", "answers")


def _sample(
    stream: StreamSettings, source: TopicSettings, records: Sequence[ConsumerRecord], decoded: Decoded
) -> StreamSample:
    """Return the newest records as a sample, with the instants at which the topic got them."""
    path = stream.declared.time.field
    values, stamps = [record.value for record in records], [record.timestamp for record in records]

    def read(format: TimeFormat) -> Int64Array:
        time = structs.replace(stream.declared.time, format=format)
        other = replace(stream, declared=structs.replace(stream.declared, time=time))
        found = decoder_of(source, [other]).decode(values, stamps)
        return np.asarray(found.columns[path], np.int64)

    newest_us: dict[int, int] = {}
    arrived_us = np.zeros(len(decoded.kept), dtype=np.int64)
    for place, index in enumerate(decoded.kept.tolist()):
        record = records[index]
        newest_us[record.partition] = max(newest_us.get(record.partition, 0), record.timestamp * 1000)
        arrived_us[place] = newest_us[record.partition]
    return StreamSample(
        decoded.columns,
        [Refusal("", at, reason, values[at]) for at, reason in decoded.refused],
        arrived_us,
        np.asarray(decoded.columns[path], np.int64),
        read if source.schema_registry is None else None,
    )


def _rows(stream: StreamSettings, sample: StreamSample) -> Iterator[Finding]:
    """Yield whether the newest rows of an engine count, and which origins let bins wait."""
    yield decoding_finding(stream, sample)
    declared, now_us = stream.declared, time.time_ns() // 1000
    columns = {field: list(sample.columns[field]) for field in ROW_FIELDS}
    times_us, rules = sample.newest_us.tolist(), declared.row_rules(now_us)
    found = read_rows(columns, times_us, range(len(times_us)), PartitionState(0, 0), rules)
    newest = {str(origin): at for at, origin in enumerate(columns["origin"])}
    why = [
        refused_because(reason)
        for reason, mask in found.refused.items()  # an engine may repeat rows, and then go on
        if reason is not Reason.REPEATED or mask[list(newest.values())].any()
    ]
    if why:
        what = f"streams.{stream.name}.source.counts"
        yield Finding(what, "warn", f"some of the newest rows count nothing: {'; '.join(why)}")
    waits_us = now_us - declared.time.bin_us - declared.time.grace_us
    closed_us = {one.number: one.closed_us or 0 for _, one in found.passed}
    late = [str(one) for one in range(declared.source.origins) if closed_us.get(one, 0) < waits_us]
    said = f"the newest rows close none of {', '.join(late)}, and bins wait; look at the engine"
    ok = Finding(f"streams.{stream.name}.source.origins", "ok", "the newest rows close each of them")
    yield replace(ok, state="warn", said=said) if late else ok


def _output_topic(topic: str, facts: TopicFacts | None) -> Finding:
    """Return whether a topic for releases keeps each release for ever."""
    if facts is None:
        return Finding("outputs", "ok", f"{topic} does not exist yet; the worker creates it")
    if facts.cleanup_policy != "compact" or facts.partitions != 1:
        said = f"{topic} must be compacted, and nothing else, and have one partition; name another topic"
        return Finding("outputs", "fail", f"{said}: what it forgets could be released a second time")
    return Finding("outputs", "ok", f"{topic} is compacted and has one partition")


def _letters_topic(topic: str, facts: TopicFacts | None, keep_us: int) -> Finding:
    """Return whether the topic keeps dead letters no longer than their files are kept."""
    what = "dead_letters.topic"
    if facts is None:
        return Finding(what, "ok", f"{topic} does not exist yet; the first start creates it")
    try:
        check_topic(topic, facts, keep_us)
    except OperatorError as refusal:
        return Finding(what, "fail", str(refusal).removeprefix(f"{what}: "))
    return Finding(what, "ok", f"{topic} deletes letters within dead_letters.keep")


def _alerts_topic(topic: str, facts: TopicFacts | None) -> Finding:
    """Return whether the topic for alerts exists; the service does not create it."""
    if facts is None:
        return Finding("alerts.topic", "fail", f"{topic} does not exist; create it, or name another topic")
    return Finding("alerts.topic", "ok", f"{topic} has {facts.partitions} partition(s)")
