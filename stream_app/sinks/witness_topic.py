"""The witness as a compacted topic: the output topic that readers follow is also the record of releases.

A record is a released row. Its key names stream, epoch and bin; its value is the bytes that every output
repeats. If a row holds only hashes of its bin's values, the header "values" holds the values. Older builds
wrote the settings of all segments into the header "generations" of a segment's first row. Each stream has
one writer. Kafka's transactions fence its predecessors: a worker that was paused cannot add a row once
another worker has claimed the stream. So the writer always knows the last row: between faults nothing is read
from the topic, and the streams' transactions run concurrently.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_app.core.records import WitnessRow
from stream_app.core.releases.row_values import strategies_in
from stream_app.core.segments.names import base_of, number_of
from stream_app.core.segments.strategies import is_change
from stream_app.core.strategy import Strategy
from stream_app.kafka.cluster import Cluster, answered
from stream_app.kafka.topics import COMPACTED, made_topic, records_of
from stream_app.ports import OperatorError, Witness
from stream_app.sinks.topics import NotOwn, Record, own_records
from stream_app.stored_format import CHANGES, GENERATIONS, check_format
from stream_app.together import ignore_failure

_FIRST_WINDOW = 512  # records read from the end, then four times as many
_VALUES = "values"  # the header of a record
_FORMAT = "format"  # the header of a record that needs a newer stored format than the first
_SETTLE_S = 10.0


class WitnessTopic(Witness):
    """Rows of any number of streams in one topic; made by ``open``.

    Raises (every method): OSError if Kafka does not answer, or another worker has claimed the stream.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._place = TopicPartition(topic, 0)
        # These two return the end of the log, with and without the rows of open transactions. They have no
        # partition, so they never poll: an answer would wait behind a poll on the same connection.
        self._committed = self._consumer("read_committed")
        self._written = self._consumer("read_uncommitted")
        self._writers: dict[str, AIOKafkaProducer] = {}
        self._heads: dict[str, tuple[int, bytes]] = {}
        self._known: set[str] = set()  # streams whose head was read after this worker had claimed them
        self._looked_at: dict[str, int] = {}  # by stream: the end of the log when its head was looked up
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @classmethod
    async def open(cls, cluster: Cluster, topic: str) -> WitnessTopic:
        """Return the witness over a topic, which is created if needed.

        Raises: OperatorError for a topic that is not compacted, or has several partitions.
        """
        facts = await made_topic(cluster, topic, COMPACTED)
        if facts.cleanup_policy != "compact":
            policy = facts.cleanup_policy or "that this user may not see"
            raise OperatorError(
                f"outputs: topic {topic} has cleanup.policy {policy}, so releases would be forgotten and "
                "get noise again; set it to compact, or name another topic"
            )
        if facts.partitions != 1:
            raise OperatorError(
                f"outputs: topic {topic} has {facts.partitions} partitions; releases need one, for their "
                "order: name another topic"
            )
        witness = cls(cluster, topic)
        try:
            await witness.connect()
        except BaseException:
            await witness.close()
            raise
        return witness

    async def connect(self) -> None:
        """Connect to the cluster, to read."""
        for client in (self._committed, self._written):
            await answered(self._cluster, self._place.topic, client.start())

    async def close(self) -> None:
        for client in (*self._writers.values(), self._committed, self._written):
            with suppress(OSError):
                await answered(self._cluster, self._place.topic, client.stop())
        self._writers.clear()

    async def claim(self, stream: str) -> None:
        async with self._locks[stream]:
            await self._drop_writer(stream)
            writer = AIOKafkaProducer(
                transactional_id=f"{self._place.topic}.{stream}",
                acks="all",
                **self._cluster.client(),
            )
            self._writers[stream] = writer
            try:
                # This ends the transactions of an earlier writer.
                await answered(self._cluster, self._place.topic, writer.start())
            except BaseException:
                await self._drop_writer(stream)
                raise

    async def resign(self, stream: str) -> None:
        async with self._locks[stream]:
            await self._drop_writer(stream)

    async def append(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        async with self._locks[stream]:
            head_seq, head_row = await self._head(stream) or (0, b"")
            if any(row.seq == head_seq and row.row != head_row for row in rows):
                raise OperatorError(
                    f"topic {self._place.topic}: row {head_seq} of {stream} differs from the store's; stop "
                    "every worker of another store"
                )
            new = [row for row in rows if row.seq > head_seq]
            if new:
                await self._write(stream, new)
                self._heads[stream] = rows[-1].seq, rows[-1].row

    async def head(self, stream: str) -> tuple[int, bytes] | None:
        async with self._locks[stream]:
            return await self._head(stream)

    async def rows(self, stream: str, after_seq: int) -> list[WitnessRow]:
        """Return rows with seq > after_seq, in order. Cost: reads the whole topic."""
        records = await records_of(self._cluster, self._place, await self._first(), await self._settled_end())
        return [row for row in _rows(records, stream) if row.seq > after_seq]

    async def strategy(self, stream: str) -> Strategy | None:
        """Return the strategy in the rows of a segment; None if none has it. Cost: reads up to that row."""
        start, end, window = await self._first(), await self._settled_end(), _FIRST_WINDOW
        while start < end:
            stop = min(start + window, end)
            for strategy in strategies_in(
                _rows(await records_of(self._cluster, self._place, start, stop), stream)
            ):
                return strategy
            start, window = stop, window * 4
        return None

    async def newest(self, streams: Collection[str]) -> dict[str, int]:
        """Return, for each stream with rows in the topic, the number of its newest segment with a row.

        Cost: reads back from the end until each of them has a row.
        """
        found = dict[str, int]()
        async for read in self._back(await self._first(), await self._settled_end()):
            for stream in streams:
                if stream not in found and (numbers := [*_numbers(read, stream)]):
                    found[stream] = max(numbers)
            if found.keys() >= set(streams):
                break
        return found

    async def _back(self, first: int, end: int) -> AsyncIterator[list[Record]]:
        """Yield the records between two offsets in parts, the last part first."""
        window = _FIRST_WINDOW
        while end > first:
            start = max(end - window, first)
            yield await records_of(self._cluster, self._place, start, end)
            end, window = start, window * 4

    async def _write(self, stream: str, rows: Sequence[WitnessRow]) -> None:
        writer = self._writers.get(stream)
        if writer is None:
            raise ConnectionError(f"topic {self._place.topic}: {stream} is not claimed by this worker")
        try:
            await answered(self._cluster, self._place.topic, self._send(stream, writer, rows))
        except BaseException:
            # Fenced, or it is unknown whether the rows were committed: the next claim settles that.
            await self._drop_writer(stream)
            raise

    async def _send(self, stream: str, writer: AIOKafkaProducer, rows: Sequence[WitnessRow]) -> None:
        own = (name for name in self._writers if base_of(name) == base_of(stream))
        of_several = any(number_of(name) > 1 for name in own)
        async with writer.transaction():
            for row in rows:
                headers = _headers(row, of_several=of_several)
                sent = await writer.send(
                    self._place.topic,
                    row.row,
                    _key(stream, row.row),
                    self._place.partition,
                    headers=headers or None,
                )
                sent.add_done_callback(ignore_failure)  # the commit reports the failure

    async def _drop_writer(self, stream: str) -> None:
        self._known.discard(stream)
        writer = self._writers.pop(stream, None)
        if writer is not None:
            with suppress(OSError):
                await answered(self._cluster, self._place.topic, writer.stop())
            for unsent in chain(*writer._message_accumulator._batches.values()):
                if unsent._drain_waiter.done():
                    # aiokafka waits for this failure nowhere, so asyncio would log that it was forgotten.
                    unsent._drain_waiter.exception()

    async def _head(self, stream: str) -> tuple[int, bytes] | None:
        """Return the head from the records since the last call; the first time, search back from the end.

        Cost: nothing if this is the stream's writer and has read the head since it claimed the stream.
        """
        if stream in self._known:
            return self._heads.get(stream)
        first, end = await self._first(), await self._settled_end()
        looked_at = self._looked_at.get(stream)
        stop_at = first if looked_at is None or looked_at > end else max(looked_at, first)
        async for read in self._back(stop_at, end):
            if own := [*_rows(read, stream)]:
                self._heads[stream] = own[-1].seq, own[-1].row
                break
            if any(number < number_of(stream) for number in _numbers(read, base_of(stream))):
                break  # the rows of a segment come after those of the segments before
        self._looked_at[stream] = end
        if stream in self._writers:
            self._known.add(stream)
        return self._heads.get(stream)

    async def _first(self) -> int:
        asked = self._committed.beginning_offsets([self._place])
        return int((await answered(self._cluster, self._place.topic, asked))[self._place])

    async def _settled_end(self) -> int:
        """Return the end of the log once every transaction before it has been committed or aborted."""
        end = await self._end(self._written)
        for _ in range(int(_SETTLE_S * 100)):
            if await self._end(self._committed) >= end:
                return end
            await asyncio.sleep(0.01)
        raise ConnectionError(f"topic {self._place.topic}: a transaction stays open; its writer has stopped")

    async def _end(self, client: AIOKafkaConsumer) -> int:
        asked = client.end_offsets([self._place])
        return int((await answered(self._cluster, self._place.topic, asked))[self._place])

    def _consumer(self, isolation_level: str) -> AIOKafkaConsumer:
        """Return a consumer that is not started and has no partition."""
        return AIOKafkaConsumer(
            isolation_level=isolation_level, auto_offset_reset="none", **self._cluster.client()
        )


def _key(stream: str, row: bytes) -> bytes:
    """Return a key that no other row has, so that compaction of the topic deletes no row."""
    message = json.loads(row)
    return f"{stream}/{message['epoch']}/{message['bin']}".encode()


def _rows(records: Iterable[Record], stream: str) -> Iterator[WitnessRow]:
    """Yield each row of a stream."""
    of_stream = (record for record in records if (record.key or b"").startswith(f"{stream}/".encode()))
    return own_records(of_stream, _read)


def _numbers(records: Iterable[Record], stream: str) -> Iterator[int]:
    """Yield the number of the segment of each row of a stream. Args: stream, as configured."""
    for record in records:
        name = (record.key or b"").partition(b"/")[0].decode(errors="replace")
        if base_of(name) == stream and record.value is not None:
            with suppress(NotOwn, ValueError):
                _read(record.key or b"", record.value, record)
                yield number_of(name)


def _headers(row: WitnessRow, *, of_several: bool) -> list[tuple[str, bytes]]:
    headers = [(_VALUES, row.values)] if row.values else []
    if of_several:
        return [*headers, (_FORMAT, b"%d" % GENERATIONS)]
    return [*headers, (_FORMAT, b"%d" % CHANGES)] if is_change(row.row) else headers


def _read(key: bytes, row: bytes, record: Record) -> WitnessRow:
    """Return a row of any stream. Raises: NotOwn; OperatorError, newer format."""
    headers = dict(record.headers)
    check_format(f"topic {record.topic}", headers.get(_FORMAT))
    try:
        seq = json.loads(row)["seq"]
        is_own = type(seq) is int and _key(key.decode().split("/", 1)[0], row) == key
    except (ValueError, LookupError, TypeError, RecursionError):
        is_own = False
    if not is_own:
        raise NotOwn
    return WitnessRow(seq, row, headers.get(_VALUES, b""))
