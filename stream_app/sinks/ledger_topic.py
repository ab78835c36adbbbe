"""The ledger outside the store as a compacted topic: one record per entry, keyed by its place.

Every use makes its own connections, because uses are rare: one at a start, one per epoch. Two workers may
both write an entry. Its key and bytes are the same, so the second record changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from aiokafka import TopicPartition

from stream_app.core.ledger import entry_from_json, entry_to_json
from stream_app.core.records import LedgerEntry
from stream_app.kafka.cluster import Cluster, answered
from stream_app.kafka.topics import COMPACTED, facts_soon, records_of
from stream_app.ports import OutsideLedger
from stream_app.ports.errors import WorkerError
from stream_app.sinks.ledger_file import HEADER, is_ledger, missing
from stream_app.sinks.topics import NotOwn, Producer, Record, own_records

_HEADER_KEY = b"private_counts_ledger"
_KEY = re.compile(rb".+/.+/\d+/\w+/-?\d+", re.DOTALL)  # of an entry


class LedgerTopic(OutsideLedger):
    """Entries in a cluster; an append returns when all replicas have them.

    Raises (every method): OSError if Kafka does not answer; WorkerError for a topic that is missing, may
        delete records, or is not a ledger.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.name = f"ledger.topic: {topic}"
        self._cluster = cluster
        self._place = TopicPartition(topic, 0)
        self._known: set[bytes] | None = None

    @classmethod
    async def create(cls, cluster: Cluster, topic: str) -> LedgerTopic:
        """Create and return a new ledger. Raises: WorkerError if the topic has records already."""
        ledger = cls(cluster, topic)
        await ledger._check(COMPACTED)
        if await ledger._records():
            raise WorkerError(f"ledger.topic: {topic} holds records already; a ledger is begun once: keep it")
        await ledger._send([(_HEADER_KEY, HEADER)])
        return ledger

    async def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries, oldest first. Cost: reads the whole topic, one record per epoch."""
        await self._check()
        found = [*own_records(await self._records(), self._read)]
        if None not in found:  # the header
            raise WorkerError(missing(self.name))
        entries = tuple(dict.fromkeys(entry for entry in found if entry is not None))
        self._known = {entry_to_json(entry) for entry in entries}
        return entries

    def _read(self, key: bytes, value: bytes, _record: Record) -> LedgerEntry | None:
        """Return an entry; None for the header. Raises: NotOwn; WorkerError for an unknown version."""
        if key == _HEADER_KEY:
            if not is_ledger(self.name, value):
                raise WorkerError(missing(self.name))
            return None
        try:
            return entry_from_json(value)
        except (ValueError, TypeError, RecursionError):
            if not _KEY.fullmatch(key):
                raise NotOwn from None
            # It may be an entry of a newer build: without it the ledger would understate a source.
            raise WorkerError(
                f"{self.name} holds a record that is no entry; name another topic, or update the service"
            ) from None

    async def append(self, entries: Sequence[LedgerEntry]) -> None:
        if self._known is None:
            await self.entries()
        known = self._known or set()
        new = {entry_to_json(entry): _key(entry) for entry in entries}
        await self._send([(key, text) for text, key in new.items() if text not in known])
        known.update(new)

    async def _check(self, settings: Mapping[str, str] | None = None) -> None:
        facts = await facts_soon(self._cluster, self._place.topic, settings)
        if facts is None:
            raise WorkerError(missing(self.name))
        if facts.cleanup_policy != "compact" or facts.partitions != 1:
            policy = facts.cleanup_policy or "unknown to this user"
            raise WorkerError(
                f"{self.name} has {facts.partitions} partition(s) and its cleanup.policy is {policy}; a "
                "ledger needs one partition and cleanup.policy=compact: set it, or name another topic"
            )

    async def _send(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        if not records:
            return
        producer = Producer(self._cluster)
        try:
            client = await answered(self._cluster, self._place.topic, producer.started())
            for key, value in records:
                sent = client.send_and_wait(self._place.topic, value, key, self._place.partition)
                await answered(self._cluster, self._place.topic, sent)
        finally:
            await producer.stop()

    async def _records(self) -> list[Record]:
        # Entries are sent without a transaction; an open one of another producer must hide none.
        return await records_of(self._cluster, self._place, isolation_level="read_uncommitted")


def _key(entry: LedgerEntry) -> bytes:
    """Return a key that no other entry has, so that compaction of the topic deletes no entry."""
    return f"{entry.source}/{entry.stream}/{entry.epoch}/{entry.strategy_hash}/{entry.start_us}".encode()
