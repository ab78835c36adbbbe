"""A Kafka topic: batches of committed records from the positions that the store holds.

The consumer group (``kafka_group``) distributes partitions over workers. Its committed offsets only serve lag
tools. Records of a revoked partition are discarded; the store's compare-and-set protects against a worker
that does not know yet that its partition was revoked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient

from dphist.arrays import Int64Array
from stream_app.core.incoming import Reason, RecordBatch, Refusal
from stream_app.kafka.cluster import Cluster, answered, stop_reader, translating_errors
from stream_app.kafka.topics import TopicFacts, check_keeps_records, topic_facts
from stream_app.ports import OperatorError, Source
from stream_app.sources.decode import decoded_in_turns
from stream_app.sources.kafka_columns import MOST_RECORDS, Columns, return_columns
from stream_app.sources.kafka_group import (
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    ClassicGroup,
    ConsumerGroup,
    Group,
)
from stream_app.sources.topic_records import TopicDecoder
from stream_app.together import SharedAnswer

# Records of one read, over all partitions, and the bytes of values after which it takes no further piece: all
# pieces of a read are unpacked in one turn of the event loop, and cuts need turns too.
MOST_READ, MOST_READ_BYTES = 2 * MOST_RECORDS, 4 << 20
NOTICE_PARTITIONS_MS = 2_000
COMMIT_EVERY_S = 5.0
T = TypeVar("T")
_ANSWER_S = 10.0
_LEAST_FETCH_BYTES = 1 << 20
_MOST_FETCH_BYTES = 8 << 20  # over all partitions: records fetched ahead stay in memory until read


class KafkaSource(Source):
    """One topic for all its streams; made by ``open``. ``Source`` describes each method.

    A position is the offset of the next record. Offsets have gaps, from markers of transactions and aborted
    records; a batch's ``end`` is beyond such gaps.
    Raises (every method): OSError if Kafka does not answer; OperatorError if positions are not in the topic,
        or it is a different topic.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        facts: TopicFacts,
        group: str,
        decoder: TopicDecoder,
        names: Path | None,
    ) -> None:
        self.facts = facts
        self._cluster = cluster
        self._topic = topic
        self._decoder = decoder
        client = cluster.client()
        self._reader = AIOKafkaConsumer(
            group_id=f"{group}.{topic}" if names is None else None,
            isolation_level="read_committed",
            # A position outside the log must be an error: any default would lose or repeat records.
            auto_offset_reset="none",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=NOTICE_PARTITIONS_MS,
            fetch_max_bytes=_MOST_FETCH_BYTES,
            max_partition_fetch_bytes=max(facts.largest_message_bytes, _LEAST_FETCH_BYTES),
            **client,
        )
        # Cuts are high watermarks; a reader of committed records would get the last stable offset instead.
        self._asker = AIOKafkaConsumer(isolation_level="read_uncommitted", **client)
        self._admin = AIOKafkaAdminClient(**client)
        self._listed = SharedAnswer(self._list_partitions)
        self._group: Group = ClassicGroup(topic)
        if names is not None:
            self._group = ConsumerGroup(cluster, f"{group}.{topic}", topic, facts.topic_id, names)
        self._moment = -1  # the number of the rebalance after which the positions were set
        self._next: dict[TopicPartition, int] = {}  # where the consumer continues to read
        self._watermarks: dict[str, int] = {}
        self._failure: errors.KafkaError | None = None  # for the next read to raise
        self._committed_at_s = 0.0

    @classmethod
    async def open(
        cls, cluster: Cluster, topic: str, group: str, decoder: TopicDecoder, names: Path | None = None
    ) -> KafkaSource:
        """Return the source, after it has joined the topic's consumer group.

        Args: names, a directory for the names of members of the new group protocol; None for the classic one.
        Raises: OperatorError for a topic that does not exist, or is compacted.
        """
        facts = await topic_facts(cluster, topic)
        if facts is None:
            raise OperatorError(f"topic {topic}: {cluster.bootstrap_servers} has none; create it")
        check_keeps_records(topic, facts)
        source = cls(cluster, topic, facts, group, decoder, names)
        try:
            await source._start()
        except BaseException:
            await source.close()
            raise
        return source

    async def _start(self) -> None:
        for client in (self._admin, self._asker, self._reader):
            await self._answered(client.start())
        return_columns(self._reader, timestamps=self._decoder.needs_timestamps)
        await self._answered(self._group.join(self._reader))

    def ends(self) -> Mapping[str, int]:
        """Return the ends of the owned partitions at their last read, for the operator's lag metric."""
        places = self._group.partitions & self._next.keys()
        ends = {str(place.partition): self._reader.highwater(place) for place in places}
        return {partition: end for partition, end in ends.items() if end is not None}

    async def close(self) -> None:
        await self._group.leave()
        for reader in (self._reader, self._asker):
            await stop_reader(self._cluster, self._topic, reader)
        await self._admin.close()

    async def partitions(self) -> Sequence[str]:
        return await self._listed()

    async def _list_partitions(self) -> Sequence[str]:
        [topic] = await self._answered(self._admin.describe_topics([self._topic]))
        # A broker that has just started may not know its topics yet.
        if topic["error_code"]:
            raise ConnectionError(f"topic {self._topic}: the cluster does not know it; was it deleted?")
        return sorted((str(found["partition"]) for found in topic["partitions"]), key=int)

    async def owned(self) -> Sequence[str]:
        self._group.check()
        return sorted((str(owned.partition) for owned in self._group.partitions), key=int)

    async def first_position(self, partition: str, since_us: int | None) -> int:
        place = self._place(partition)
        if since_us is None:
            return int((await self._answered(self._asker.beginning_offsets([place])))[place])
        asked = self._asker.offsets_for_times({place: -(-since_us // 1000)})
        if (found := (await self._answered(asked))[place]) is not None:
            return int(found.offset)
        return int((await self._answered(self._asker.end_offsets([place])))[place])

    async def kept_since_us(self) -> int | None:
        """Return when the oldest remaining record was written, in the partition that lost the most.

        This comes from the records' timestamps, which producers may set.
        """
        places = [self._place(partition) for partition in await self.partitions()]
        first = await self._answered(self._asker.beginning_offsets(places))
        ends = await self._answered(self._asker.end_offsets(places))
        cut_off = [place for place in places if first[place]]
        if any(first[place] == ends[place] for place in cut_off):
            return time.time_ns() // 1_000
        written_us = [await self._answered(self._written_at_us(place, first[place])) for place in cut_off]
        return max(written_us, default=None)

    async def _written_at_us(self, place: TopicPartition, offset: int) -> int:
        """Return the write time of the first record at or after an offset."""
        reader = AIOKafkaConsumer(auto_offset_reset="none", **self._cluster.client())
        try:
            await reader.start()
            reader.assign([place])
            reader.seek(place, offset)
            async with asyncio.timeout(_ANSWER_S):
                return int((await reader.getone(place)).timestamp) * 1_000
        finally:
            await stop_reader(self._cluster, self._topic, reader)

    async def positions_at(
        self, partitions: Sequence[str], instants_us: Sequence[int]
    ) -> Mapping[str, Sequence[int]]:
        asked = self._asker.end_offsets([self._place(partition) for partition in partitions])
        ends = await self._answered(asked)
        found = {str(place.partition): int(end) for place, end in ends.items()}
        for partition, watermark in found.items():
            if watermark < self._watermarks.get(partition, 0):
                raise self._group.lacks_records()
            self._watermarks[partition] = watermark
        return {partition: [end] * len(instants_us) for partition, end in found.items()}

    async def read(self, positions: Mapping[str, int], timeout_s: float) -> Sequence[RecordBatch]:
        self._group.check()
        moment = self._group.moment
        starts = {
            place: positions[str(place.partition)]
            for place in self._group.partitions
            if str(place.partition) in positions
        }
        try:
            with translating_errors(self._cluster):
                self._seek(starts, moment)
                # Poll also without a partition to read: a member that never polls is removed from the group.
                fetched = await self._fetched(list(starts) or [self._place("-1")], timeout_s)
                if moment != self._group.moment:
                    return ()
                # Ask for every partition: even without records a position may pass a gap.
                self._next = {place: await self._reader.position(place) for place in starts}
            records = {place: _joined(fetched.get(place, [])) for place in starts}
            ready = await self._decoder.prepare([found.values for found in records.values()])
            if moment != self._group.moment:
                return ()
        except ConnectionError as failure:
            if moment != self._group.moment:
                return ()  # the partition was taken away meanwhile
            self._moment = -1
            if isinstance(failure.__cause__, errors.OffsetOutOfRangeError):
                raise self._group.lacks_records() from None
            raise
        await self._tell_lag_tools(starts)
        ends = dict(self._next)
        batches = [
            await self._batch(place, starts[place], ends[place], found.up_to(count))
            for (place, found), count in zip(records.items(), ready, strict=True)
            if starts[place] < ends[place]  # decoding nothing, for each partition, is most of an idle read
        ]
        if moment != self._group.moment:
            return ()
        return [batch for batch in batches if batch.start < batch.end]

    async def _fetched(
        self, places: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, list[Columns]]:
        """Return the fetched records of all partitions; wait for the first piece only.

        A read costs each stream a call to the store. So a read takes all partitions, if their records are few
        and small. Raises: Kafka's error of a partition if it comes first, and else in the next read.
        """
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure
        fetched: dict[TopicPartition, list[Columns]] = {}
        records, size, timeout_ms = 0, 0, int(timeout_s * 1000)
        try:
            while records <= MOST_READ - MOST_RECORDS and size <= MOST_READ_BYTES:
                got = await self._reader.getmany(*places, timeout_ms=timeout_ms, max_records=1)
                if not got:
                    break
                for place, pieces in got.items():
                    fetched.setdefault(place, []).extend(pieces)
                    records += sum(len(piece.offsets) for piece in pieces)
                    size += sum(len(value) for piece in pieces for value in piece.values if value)
                timeout_ms = 0
        except errors.KafkaError as failure:
            if not fetched:
                raise
            self._failure = failure
        return fetched

    def _seek(self, starts: Mapping[TopicPartition, int], moment: int) -> None:
        if moment != self._moment:
            self._next.clear()
            self._failure = None
            self._moment = moment
            self._group.begin(self._reader)
        for place, start in starts.items():
            if self._next.get(place) != start:
                self._reader.seek(place, start)

    async def _batch(self, place: TopicPartition, start: int, end: int, records: _Records) -> RecordBatch:
        partition = str(place.partition)
        offsets, timestamps_ms, values, others, waits_at = records
        decoded = await decoded_in_turns(
            lambda part: self._decoder.decode(values[part], timestamps_ms[part]), values
        )
        refused = [Refusal(partition, offset, reason, b"") for offset, reason in others]
        refused += [
            Refusal(partition, int(offsets[index]), reason, values[index])
            for index, reason in decoded.refused
        ]
        return RecordBatch(
            partition=partition,
            start=start,
            end=end if waits_at is None else waits_at,
            positions=offsets[decoded.kept],
            columns=decoded.columns,
            refused=refused,
            records=[values[index] for index in decoded.kept.tolist()] if decoded.refused else values,
        )

    async def _tell_lag_tools(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit positions that are read to the group from time to time; a failure does not matter."""
        now_s = asyncio.get_running_loop().time()
        if not positions or now_s - self._committed_at_s < COMMIT_EVERY_S:
            return
        self._committed_at_s = now_s
        with suppress(errors.KafkaError, OSError):
            await self._group.commit(self._reader, positions)

    async def _answered(self, asked: Awaitable[T]) -> T:
        return await answered(self._cluster, self._topic, asked)

    def _place(self, partition: str) -> TopicPartition:
        return TopicPartition(self._topic, int(partition))


class _Records(NamedTuple):
    """Records of one read: records with a value, as columns, and refused records."""

    offsets: Int64Array
    timestamps_ms: list[int]
    values: list[bytes]
    others: list[tuple[int, Reason]]
    waits_at: int | None = None  # the offset of the first record that is left for a later read

    def up_to(self, count: int) -> _Records:
        """Return the first ``count`` records; the others wait for a later read."""
        if count == len(self.values):
            return self
        waits_at = int(self.offsets[count])
        others = [other for other in self.others if other[0] < waits_at]
        return _Records(
            self.offsets[:count], self.timestamps_ms[:count], self.values[:count], others, waits_at
        )


def _joined(pieces: Sequence[Columns]) -> _Records:
    offsets = [offset for piece in pieces for offset in piece.offsets]
    timestamps_ms = [time for piece in pieces for time in piece.timestamps_ms]
    values = [value for piece in pieces for value in piece.values if value is not None]
    others = [(offset, Reason.UNREADABLE_BATCH) for piece in pieces for offset in piece.unreadable]
    if len(values) < len(offsets):
        present = [value is not None for piece in pieces for value in piece.values]
        others += [(at, Reason.TOMBSTONE) for at, here in zip(offsets, present, strict=True) if not here]
        offsets = list(compress(offsets, present))
        timestamps_ms = list(compress(timestamps_ms, present))
    return _Records(np.array(offsets, dtype=np.int64), timestamps_ms, values, others)
