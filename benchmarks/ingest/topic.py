"""Topics of the benchmark: JSON events of three fields, spread evenly over a hundred hours of event time."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

HOUR_US = 3_600_000_000
HOURS = 100  # hours; a batch of some thousand events has events of each
POOL = 100_000  # number of different events, which a topic repeats


def draw_events(last_us: int) -> list[bytes]:
    """Return the pool of events: times in random order within the hours before an instant."""
    rng = random.Random(20131)
    first_ms = (last_us - HOURS * HOUR_US) // 1_000
    return [
        b'{"user":"u%06d","at":%d,"page":"/p/%d"}'
        % (rng.randrange(10**6), first_ms + rng.randrange(HOURS * HOUR_US // 1_000), rng.randrange(1000))
        for _ in range(POOL)
    ]


def hours_of(pool: Sequence[bytes], events: int) -> Counter[int]:
    """Return the counts per hour of a topic's first events. Every contender must find these counts."""
    rounds, rest = divmod(events, POOL)
    hours = [int(event.split(b'"at":')[1].split(b",")[0]) * 1_000 // HOUR_US for event in pool]
    counts = Counter({hour: rounds * count for hour, count in Counter(hours).items()})
    counts.update(hours[:rest])
    return counts


def make_topic(
    servers: str, name: str, partitions: int, pool: Sequence[bytes], events: int, codec: str = "lz4"
) -> None:
    """Create a topic and fill it, spread over its partitions, in batches of some thousand events."""
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        done.result(30)
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": 50,
            "batch.num.messages": 5_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 200_000,
        }
    )
    for number in range(events):
        value, partition = pool[number % POOL], number // 1_000 % partitions
        while True:
            try:
                producer.produce(name, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120):
        raise KafkaException(f"{name}: not all events were delivered")


def delete_topic(servers: str, name: str) -> None:
    """Delete a topic, so that the disk never holds all topics at once."""
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.delete_topics([name]).values():
        done.result(30)


def last_full_hour_us() -> int:
    """Return the instant at which the events end: the last full hour."""
    return int(time.time()) // 3600 * HOUR_US
