"""A recount of a topic by another Kafka client. It counts records before it deletes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.chaos.traffic import PARTITIONS, Visit
from tests.patience import PATIENCE_S


class Recount:
    """Keeps a topic's committed events, and deletes records like retention."""

    def __init__(self, servers: str, topic: str) -> None:
        self.visits: list[Visit] = []
        self.servers = servers
        self.topic = topic
        self.next = dict.fromkeys(range(PARTITIONS), 0)

    @property
    def counts(self) -> Counter[int]:
        """The number of events of each bin, by their own time."""
        return Counter(visit.bin for visit in self.visits)

    def delete_before(self, instant_ms: int) -> None:
        """Count the records from before an instant, then delete them, as retention does.

        Each partition keeps its last record from before the instant, and so says that it has lost nothing
        since. Otherwise an emptied store begins as late as the oldest record of a quiet partition was
        written, and leaves out bins (docs/privacy.md, "records read again after a loss").
        """
        consumer = self._consumer()
        try:
            asked = [TopicPartition(self.topic, partition, instant_ms) for partition in self.next]
            found = {one.partition: one.offset for one in consumer.offsets_for_times(asked, PATIENCE_S)}
        finally:
            consumer.close()
        ends = {partition: offset for partition, offset in found.items() if offset > self.next[partition]}
        self._delete(self._count(ends))

    def lose_a_record_of_each(self) -> None:
        """Write a record to each partition, and delete all records before anybody has read the new ones."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for partition in self.next:
            producer.produce(self.topic, b"{}", partition=partition)
        producer.flush(PATIENCE_S)
        self._delete(dict.fromkeys(self.next, OFFSET_END))

    def count_all(self) -> None:
        """Count all records that are left."""
        self._count(dict.fromkeys(self.next))

    def _count(self, ends: Mapping[int, int | None]) -> dict[int, int]:
        """Count from where the last call ended up to some offsets; return the offset of each last record.

        Args: ends, the offset by partition; None means the partition's end.
        """
        consumer, left, last = self._consumer(), set(ends), dict[int, int]()
        consumer.assign([TopicPartition(self.topic, partition, self.next[partition]) for partition in ends])
        try:
            while left:
                for message in consumer.consume(10_000, timeout=1.0):
                    partition, end, failure = message.partition(), ends[message.partition()], message.error()
                    if failure is not None and failure.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(failure)
                    if failure is not None or (end is not None and message.offset() >= end):
                        left.discard(partition)
                    elif partition in left:
                        visit = Visit.of(message.value() or b"")
                        self.visits += [] if visit is None else [visit]
                        last[partition] = message.offset()
        finally:
            consumer.close()
        self.next |= {partition: end for partition, end in ends.items() if end is not None}
        return last

    def _delete(self, ends: Mapping[int, int]) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        places = [TopicPartition(self.topic, partition, end) for partition, end in ends.items()]
        for done in admin.delete_records(places).values() if places else ():
            done.result(PATIENCE_S)

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "recount",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
