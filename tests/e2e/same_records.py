"""Writes the same records to many topics, and a hostile record to some. Also a registry of their schemas."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from confluent_kafka import Producer

from tests.brokers import Topic
from tests.simulator.conditions import LEFT_OUT
from tests.simulator.hostile import HOSTILE, KNOWN_ID, NEW_ID, NO_ID, USER, Form, Hostile, hostile_value
from tests.simulator.schedule import KEYS
from tests.simulator.written import SCHEMA

GRACE_S, BINS = 0.5, 4
HOSTILE_BIN, NEW_SCHEMA_BIN = 1, 2
LATE = 30  # late records in each bin
PARTITIONS = 2  # partitions with records; one more has only a hostile record, or none
SLOW_S = 1.5  # the registry takes this long to say that it lacks a schema
Pair = tuple[Form, Hostile | None]  # what a topic holds; None: no hostile record


@dataclass(frozen=True)
class Load:
    """How long bins are, how many records each bin has, and how many follow the hostile record at once.

    Args: kills, whether the worker is killed (kill -9) after the hostile record, and again when it goes on.
    """

    bin_s: int = 2
    records: int = 200
    behind: int = 0
    kills: bool = False


DEFAULT_LOAD = Load()
KILLS = Load(kills=True)
# So many records take seconds to count: far longer than the time between two public instants.
HEAVY_LOAD = Load(bin_s=30, behind=1_000_000)


class TooSlow(Exception):
    """The records were written so late that they may have missed the bin for which they are meant."""


@dataclass
class Writer:
    """Writes the same records to all topics of a form, and one hostile record to each topic that has one."""

    servers: str
    topics: dict[str, Topic]
    pairs: dict[str, Pair]

    def __post_init__(self) -> None:
        self.producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 2})
        self.ends = Counter[tuple[str, int]]()
        self.hostile_at: dict[tuple[str, int], int] = {}
        self.rng = random.Random("differential")

    def name(self, stream: str, partition: int, position: int) -> str:
        """Return a record's name. It is the same in all topics; the hostile record gets no number."""
        hostile = self.hostile_at.get((stream, partition), position + 1)
        return HOSTILE if position == hostile else f"{partition}-{position - (position > hostile)}"

    def write(self, start_s: float, registry: Registry, load: Load, kill: Callable[[], None]) -> None:
        """Write the records of some bins: early in each bin records on time, and late ones in its middle.

        Args: kill, kills the worker and starts it again. It takes up its work when all is written: until
            then the dead one holds the partitions.
        Raises: TooSlow if the machine took too long.
        """
        for bin in range(BINS):
            began_s = start_s + bin * load.bin_s
            if bin == HOSTILE_BIN:
                sleep_until(began_s + GRACE_S - 0.05)
                self._hostile(closing_soon=True)
            # By now the bin before has closed: the next cut is a whole bin away from all that follows.
            sleep_until(began_s + GRACE_S + 0.1)
            if bin == HOSTILE_BIN:
                self._hostile(closing_soon=False)
                self._crowd(load.behind)
            now_us = time.time_ns() // 1000
            on_time = [now_us - self.rng.randrange(150_000) for _ in range(load.records)]
            self._same(on_time, new_schema=bin > NEW_SCHEMA_BIN)
            if load.kills and bin == HOSTILE_BIN:
                kill()
            _must_be_before(began_s + load.bin_s)
            if bin == NEW_SCHEMA_BIN:
                registry.has_new = True
            # Far from every closing instant, so that late records fall into the same bin in all topics.
            sleep_until(began_s + 0.7 * load.bin_s)
            now_us = time.time_ns() // 1000
            late = [now_us - self.rng.randrange(2, 4) * load.bin_s * 10**6 for _ in range(LATE)]
            self._same(late, new_schema=False)
            _must_be_before(began_s + load.bin_s)

    def _same(self, times_us: Sequence[int], new_schema: bool) -> None:
        """Write records with these times to every topic, in the format of the topic's form."""
        users = self.rng.choices([USER, "bob", "cid", "eve"], k=len(times_us))
        keys = [KEYS[0] if user == USER else self.rng.choice(KEYS[1:]) for user in users]
        notes = self.rng.choices(["", LEFT_OUT], k=len(times_us))
        partitions = self.rng.choices(range(PARTITIONS), k=len(times_us))
        for form, streams in self._streams_of_forms():
            id = NEW_ID if new_schema else KNOWN_ID
            said = zip(times_us, keys, users, notes, strict=True)
            values = [form.value(*facts, id=id) for facts in said]
            for stream in streams:
                for partition, value in zip(partitions, values, strict=True):
                    self._produce(stream, partition, value)
        self.producer.flush()

    def _crowd(self, records: int) -> None:
        """Write many records dated now, all to the partition of the hostile record."""
        now_us = time.time_ns() // 1000
        for form, streams in self._streams_of_forms():
            value = form.value(now_us, KEYS[1], "bob")
            for stream in streams:
                for _ in range(records):
                    self._produce(stream, 0, value)
        self.producer.flush()

    def _hostile(self, closing_soon: bool) -> None:
        for stream, (form, kind) in self.pairs.items():
            if kind is not None and (kind is Hostile.SLOW_LOOK_UP) == closing_soon:
                partition = PARTITIONS if kind in (Hostile.IDLE_PARTITION, Hostile.FUTURE_IDLE) else 0
                self.hostile_at[stream, partition] = self.ends[stream, partition]
                self._produce(stream, partition, hostile_value(kind, time.time_ns() // 1000, form))
        self.producer.flush()

    def _streams_of_forms(self) -> Iterator[tuple[Form, list[str]]]:
        for form in dict.fromkeys(form for form, _ in self.pairs.values()):
            yield form, [stream for stream, (other, _) in self.pairs.items() if other == form]

    def _produce(self, stream: str, partition: int, value: bytes | None) -> None:
        self.ends[stream, partition] += 1
        while True:
            try:
                self.producer.produce(self.topics[stream].name, value, b"key", partition)
            except BufferError:
                self.producer.poll(0.1)
            else:
                return


class Registry:
    """A schema registry that answers quickly about a schema that it has, and slowly about one it lacks."""

    def __init__(self) -> None:
        self.has_new = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = int(self.path.rpartition("/")[2])
                known = asked < NEW_ID or (asked == NEW_ID and outer.has_new)
                if asked == NO_ID:
                    time.sleep(SLOW_S)
                self._answer(200 if known else 404, known)

            def _answer(self, status: int, known: bool) -> None:
                said = {"schema": json.dumps(SCHEMA)} if known else {"error_code": 40403, "message": "none"}
                body = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The registry's address."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        """Stop the server."""
        self.server.shutdown()
        self.server.server_close()


def _must_be_before(instant_s: float) -> None:
    if time.time() > instant_s:
        raise TooSlow


def sleep_until(instant_s: float) -> None:
    """Wait until an instant."""
    time.sleep(max(0.0, instant_s - time.time()))
