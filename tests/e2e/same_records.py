"""The same records in many topics, in some of them a hostile one more; and the registry of their schemas."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from confluent_kafka import Producer

from tests.brokers import Topic
from tests.simulator.hostile import HOSTILE, NEW_ID, NO_ID, USER, Form, Hostile, hostile_value
from tests.simulator.schedule import KEYS
from tests.simulator.written import SCHEMA

GRACE_S, BINS = 0.5, 4
HOSTILE_BIN, NEW_SCHEMA_BIN = 1, 2
PARTITIONS = 2  # with records; one more has none but a hostile one
SLOW_S = 1.5  # the registry takes so long to say that it has no such schema
Pair = tuple[Form, Hostile | None]  # what a topic holds; None: no hostile record


@dataclass(frozen=True)
class Load:
    """How long bins are, how many records each has, and how many follow right behind the hostile record."""

    bin_s: int = 2
    records: int = 200
    behind: int = 200


DEFAULT_LOAD = Load()
# So much takes a second to count: more than lies between two public instants.
HEAVY_LOAD = Load(bin_s=20, behind=300_000)


class TooSlow(Exception):
    """The records were written so late that they may have missed the bin that they are meant for."""


@dataclass
class Writer:
    """Writes the same records into all topics of a form, and into each its hostile one."""

    servers: str
    topics: dict[str, Topic]
    pairs: dict[str, Pair]
    names: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 2})
        self._ends: dict[tuple[str, int], int] = {}
        self._rng = random.Random("differential")

    def write(self, start_s: float, registry: Registry, load: Load) -> None:
        """Write for some bins, from a start: records on time early in each, late ones in the middle.

        Raises: TooSlow where the machine had no time for it.
        """
        number = 0
        for bin in range(BINS):
            began_s = start_s + bin * load.bin_s
            sleep_until(began_s + 0.2)
            if bin == HOSTILE_BIN:
                self._hostile(closing_soon=False)
            now_us = time.time_ns() // 1000
            count = load.behind if bin == HOSTILE_BIN else load.records
            records = [(number + n, now_us - self._rng.randrange(150_000)) for n in range(count)]
            self._same(records, new_schema=bin > NEW_SCHEMA_BIN)
            _must_be_before(began_s + load.bin_s)
            if bin == HOSTILE_BIN:
                sleep_until(began_s + GRACE_S - 0.05)
                self._hostile(closing_soon=True)
            if bin == NEW_SCHEMA_BIN:
                registry.has_new = True
            # Far from every closing instant, so that late ones fall into the same bin in all topics.
            sleep_until(began_s + 0.7 * load.bin_s)
            now_us = time.time_ns() // 1000
            late = [
                (number + count + n, now_us - self._rng.randrange(2, 4) * load.bin_s * 10**6)
                for n in range(30)
            ]
            self._same(late, new_schema=False)
            _must_be_before(began_s + load.bin_s)
            number += count + len(late)

    def _same(self, records: Sequence[tuple[int, int]], new_schema: bool) -> None:
        """Write records (number, time) to every topic, as its form says."""
        said = [
            (
                str(number),
                at_us,
                self._rng.choice([USER, "bob", "cid", "eve"]),
                self._rng.randrange(PARTITIONS),
            )
            for number, at_us in records
        ]
        keys = [KEYS[0] if user == USER else self._rng.choice(KEYS[1:]) for _, _, user, _ in said]
        for form in dict.fromkeys(form for form, _ in self.pairs.values()):
            schema = {"id": NEW_ID} if new_schema else {}
            values = [
                form.value(at_us, key, user, name, **schema)
                for (name, at_us, user, _), key in zip(said, keys, strict=True)
            ]
            for stream in [stream for stream, (other, _) in self.pairs.items() if other == form]:
                for (name, *_, partition), value in zip(said, values, strict=True):
                    self._produce(stream, partition, name, value)
        self._producer.flush()

    def _hostile(self, closing_soon: bool) -> None:
        for stream, (form, kind) in self.pairs.items():
            if kind is not None and (kind is Hostile.SLOW_LOOK_UP) == closing_soon:
                alone = kind in (Hostile.IDLE_PARTITION, Hostile.FUTURE_IDLE)
                value = hostile_value(kind, time.time_ns() // 1000, form)
                self._produce(stream, PARTITIONS if alone else 0, HOSTILE, value)
        self._producer.flush()

    def _produce(self, stream: str, partition: int, name: str, value: bytes | None) -> None:
        position = self._ends.get((stream, partition), 0)
        self._ends[stream, partition] = position + 1
        self.names[stream, str(partition), position] = name
        while True:
            try:
                self._producer.produce(self.topics[stream].name, value, b"key", partition)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return


class Registry:
    """A schema registry: quick about what it has, slow about what it has not."""

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
        """Where it is."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        """End it."""
        self.server.shutdown()
        self.server.server_close()


def _must_be_before(instant_s: float) -> None:
    if time.time() > instant_s:
        raise TooSlow


def sleep_until(instant_s: float) -> None:
    """Return at an instant."""
    time.sleep(max(0.0, instant_s - time.time()))
