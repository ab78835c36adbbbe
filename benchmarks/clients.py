"""Which client fetches a topic fastest: the worker's, aiokafka, kafka-python; JSON under results/.

    python -m benchmarks.clients

One real broker holds one topic for each codec. Each client reads all values and offsets of it in its own
process and does nothing else with them; the clients take turns. A client's figure is the median of ROUNDS:
records a second of time, and of processor time. The ratio to the worker's reader says whether another client
could carry the worker.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as Partition

from benchmarks.machine import machine
from deploy.kafka import broker
from stream_app.sources.kafka_columns import return_columns

RESULTS = Path(__file__).parent / "results" / "clients.json"
RECORDS, PARTITIONS, ROUNDS = 200_000, 4, 3
CODECS: dict[str, str | None] = {"none": None, "gzip": "gzip"}  # kafka-python reads no other here
MOST_BYTES = 8 << 20


async def produce(servers: str, topic: str, codec: str | None) -> None:
    """Make a topic of events of about 150 bytes."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    await admin.close()
    async with AIOKafkaProducer(
        bootstrap_servers=servers, compression_type=codec, linger_ms=20, max_batch_size=1 << 18
    ) as producer:
        for number in range(RECORDS):
            event = {
                "at": 1_700_000_000_000 + number,
                "user": f"user-{number % 9973}",
                "page": "/" + "p" * 80,
            }
            await producer.send(topic, json.dumps(event).encode(), partition=number % PARTITIONS)


async def columns(servers: str, topic: str, ours: bool) -> int:
    """Return how many records aiokafka has read. Args: ours, whether as columns, as the worker does."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, fetch_max_bytes=MOST_BYTES, max_partition_fetch_bytes=1 << 20
    )
    await consumer.start()
    if ours:
        return_columns(consumer)
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
    read = 0
    while read < RECORDS:
        for found in (await consumer.getmany(timeout_ms=1_000)).values():
            read += sum(len(piece.offsets) for piece in found) if ours else len(found)
    await consumer.stop()
    return read


def kafka_python(servers: str, topic: str, checked: bool = True) -> int:
    """Return how many records kafka-python has read. Args: checked, whether it computes checksums."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        fetch_max_bytes=MOST_BYTES,
        max_partition_fetch_bytes=1 << 20,
        max_poll_records=20_000,
        enable_auto_commit=False,
        check_crcs=checked,
    )
    places = [Partition(topic, partition) for partition in range(PARTITIONS)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
    read = 0
    while read < RECORDS:
        read += sum(map(len, consumer.poll(timeout_ms=1_000).values()))
    consumer.close()
    return read


CLIENTS: dict[str, Callable[[str, str], int]] = {
    "worker": lambda servers, topic: asyncio.run(columns(servers, topic, ours=True)),
    "aiokafka": lambda servers, topic: asyncio.run(columns(servers, topic, ours=False)),
    "kafka-python": kafka_python,
    "kafka-python, no checksums": lambda servers, topic: kafka_python(servers, topic, checked=False),
}


def rates(client: str, servers: str, topic: str) -> tuple[float, float]:
    """Return a client's records per second of time and of processor time, measured in its own process."""
    code = (
        f"import time; from benchmarks import clients; clients.RECORDS = {RECORDS}; began = time.time();"
        f"clients.CLIENTS[{client!r}]({servers!r}, {topic!r});"
        "print(time.time() - began, time.process_time())"
    )
    idle = float(
        subprocess.check_output(
            [sys.executable, "-c", "import time; from benchmarks import clients; print(time.process_time())"]
        )
    )
    took, busy = map(float, subprocess.check_output([sys.executable, "-c", code]).split())
    return RECORDS / took, RECORDS / (busy - idle)


def main() -> None:
    """Measure and write the table."""
    table = []
    with tempfile.TemporaryDirectory(prefix="clients-") as folder:
        cluster = broker.start(Path(folder) / "kafka")
        try:
            for topic, codec in CODECS.items():
                asyncio.run(produce(cluster.bootstrap_servers, topic, codec))
                measured = [
                    {client: rates(client, cluster.bootstrap_servers, topic) for client in CLIENTS}
                    for _ in range(ROUNDS)
                ]
                for client in CLIENTS:
                    wall, busy = zip(*(one[client] for one in measured), strict=True)
                    ours_wall, ours_busy = zip(*(one["worker"] for one in measured), strict=True)
                    table.append(
                        {
                            "codec": topic,
                            "client": client,
                            "records_a_second": round(statistics.median(wall)),
                            "records_a_cpu_second": round(statistics.median(busy)),
                            "of_the_worker": round(statistics.median(wall) / statistics.median(ours_wall), 2),
                            "of_its_cpu": round(statistics.median(busy) / statistics.median(ours_busy), 2),
                        }
                    )
                    print(json.dumps(table[-1]), flush=True)
        finally:
            cluster.stop()
    result = {
        "command": "python -m benchmarks.clients",
        "machine": machine(),
        "measured_at": time.strftime("%Y-%m-%d"),
        "clients": table,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
