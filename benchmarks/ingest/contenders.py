"""The loops that the worker is compared with, each in a separate process.

    python -m benchmarks.ingest.contenders NAME SERVERS TOPIC EVENTS

Each loop reads EVENTS events from the beginning of the topic, in its client's own batches. All but
``getmany`` and ``consume`` count them per hour. The clock starts with the first events, so joining and
connecting are not measured. A loop prints one line of JSON: seconds, CPU seconds, events and peak memory
since then, and the counts. librdkafka has its default settings: in Python it then waits for fetches now and
then, so its processor time says more than its speed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

HOUR_MS = 3_600_000
BATCH = 50_000


class Stopwatch:
    """Times a loop from its first event to its last one."""

    def __init__(self, events: int) -> None:
        self.seen = 0
        self._wanted = events
        self._first: tuple[int, float, float] | None = None

    def saw(self, events: int) -> bool:
        """Add events; return whether these were the last."""
        self.seen += events
        if self._first is None and events:
            self._first = self.seen, time.perf_counter(), time.process_time()
        return self.seen >= self._wanted

    def report(self, counts: Counter[int]) -> str:
        """Return the measurements."""
        if self._first is None:
            raise RuntimeError("there were no events")
        seen, start_s, start_cpu_s = self._first
        return json.dumps(
            {
                "events": self.seen - seen,
                "seconds": time.perf_counter() - start_s,
                "cpu_seconds": time.process_time() - start_cpu_s,
                "peak_mb": _peak_mb(),
                "counted": sum(counts.values()),
            }
        )


def _peak_mb() -> float:
    # Not ru_maxrss, which starts from the value of the parent process.
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


async def getmany(servers: str, topic: str, events: int) -> str:
    """Read aiokafka's batches and do nothing with them: the upper limit for a Python service on aiokafka."""
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    watch, done = Stopwatch(events), False
    while not done:
        batches = await consumer.getmany(timeout_ms=1000, max_records=BATCH)
        done = watch.saw(sum(map(len, batches.values())))
    report = watch.report(Counter())
    await consumer.stop()
    return report


def kafka_python(servers: str, topic: str, events: int) -> str:
    """Read with a plain loop over kafka-python's poll."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        group_id=None,
    )
    watch, counts, done = Stopwatch(events), Counter[int](), False
    while not done:
        polled = consumer.poll(timeout_ms=1000, max_records=BATCH)
        for records in polled.values():
            counts.update(json.loads(record.value)["at"] // HOUR_MS for record in records)
        done = watch.saw(sum(map(len, polled.values())))
    return watch.report(counts)


def _consumed(
    servers: str, topic: str, events: int, count: Callable[[list[bytes]], Mapping[int, int]]
) -> str:
    """Read batches through librdkafka's consume, and count each with a function of its values."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"benchmark-{os.getpid()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    watch, counts, done = Stopwatch(events), Counter[int](), False
    while not done:
        messages = consumer.consume(10_000, timeout=1.0)
        counts.update(count([message.value() for message in messages]))
        done = watch.saw(len(messages))
    report = watch.report(counts)
    consumer.close()
    return report


def consume(servers: str, topic: str, events: int) -> str:
    """Read librdkafka's batches and do nothing with them: the upper limit for Python over librdkafka."""
    return _consumed(servers, topic, events, lambda values: {0: len(values)})


def confluent(servers: str, topic: str, events: int) -> str:
    """Decode each record of librdkafka's batches with Python's own JSON."""
    return _consumed(
        servers, topic, events, lambda values: Counter(json.loads(value)["at"] // HOUR_MS for value in values)
    )


def arrow(servers: str, topic: str, events: int) -> str:
    """Decode librdkafka's batches with Arrow's reader of JSON, one column at once."""
    import pyarrow as pa
    from pyarrow import json as pa_json

    read = pa_json.ReadOptions(use_threads=False, block_size=1 << 24)
    parse = pa_json.ParseOptions(
        explicit_schema=pa.schema([("at", pa.int64())]), unexpected_field_behavior="ignore"
    )

    def count(values: list[bytes]) -> Mapping[int, int]:
        if not values:
            return {}
        table = pa_json.read_json(pa.BufferReader(b"\n".join(values)), read, parse)
        hours, found = np.unique(table["at"].to_numpy() // HOUR_MS, return_counts=True)
        return dict(zip(hours.tolist(), found.tolist(), strict=True))

    return _consumed(servers, topic, events, count)


def faust_agent(servers: str, topic: str, events: int) -> str:
    """Run an agent as Faust's documentation writes it, but with a dict, which is faster than a Table."""
    import faust

    app = faust.App(
        f"benchmark-{os.getpid()}",
        broker=f"kafka://{servers}",
        web_enabled=False,
        datadir=tempfile.mkdtemp(prefix="faust-"),
        topic_disable_leader=True,
        value_serializer="json",
    )
    watch, counts = Stopwatch(events), Counter[int]()

    @app.agent(app.topic(topic))
    async def count(stream: faust.Stream[dict[str, int]]) -> None:
        async for event in stream:
            counts[event["at"] // HOUR_MS] += 1
            if watch.saw(1):
                print(watch.report(counts), flush=True)
                os._exit(0)

    faust.Worker(app, loglevel="error", redirect_stdouts=False).execute_from_commandline()
    raise RuntimeError("the worker ended before the last event")


CONTENDERS: dict[str, Callable[[str, str, int], str]] = {
    "getmany": lambda *given: asyncio.run(getmany(*given)),
    "kafka_python": kafka_python,
    "consume": consume,
    "confluent": confluent,
    "arrow": arrow,
    "faust_agent": faust_agent,
}


if __name__ == "__main__":
    name, servers, topic, events = sys.argv[1:]
    print(CONTENDERS[name](servers, topic, int(events)), flush=True)
