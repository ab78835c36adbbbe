"""Writes events to a topic while faults hit the other processes."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.patience import PATIENCE_S

BIN_MS = 1_000
EVENTS_PER_S = 300
PARTITIONS = 6
_IDLE = PARTITIONS - 1  # rarely gets an event, and must not delay any bin
_LONGEST_LAG_MS = 1_500
PAGES, COUNTRIES = ("/", "/shop", "/about"), ("FR", "DE", "IT")
_MEMBERS = 3_000  # many of them come back within an epoch
TERM = re.compile(rb"term-\d+-\d+")
_REFUSED = 0.002  # of the events: their time cannot be read
_TERM_MS, _RARE = 90_000, 0.6  # terms change every 90 s; a few dozen come often, most of them once


class Visit(NamedTuple):
    """What a recount keeps of an event."""

    bin: int
    page: str
    country: str
    amount: float | None
    member: str
    term: str

    @classmethod
    def of(cls, value: bytes) -> Visit | None:
        """Return the visit that a record's value says; None if its time cannot be read."""
        said = json.loads(value)
        if not isinstance(said["at"], int):
            return None
        amount = said.get("amount")
        return cls(said["at"] // BIN_MS, said["page"], said["country"], amount, said["member"], said["term"])


def make_topic(servers: str, topic: str) -> None:
    """Create the topic of events."""
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        done.result(PATIENCE_S)


class Traffic:
    """A producer that writes events dated now: single events, and transactions of which it aborts half.

    Before the broker goes down, ``pause`` delivers every event that the producer has begun to write. So no
    event arrives later than the grace allows. The producer checks this, because the recount relies on it.

    Args: load, how many times the usual number of events per second.
    """

    def __init__(self, servers: str, topic: str, seed: int, grace_s: float, load: int = 1) -> None:
        self.servers = servers
        self.topic = topic
        self.rng = random.Random(f"traffic {seed}")
        self.grace_s = grace_s
        self.load = load
        self.going = threading.Event()
        self.idle = threading.Event()
        self.ended = threading.Event()
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._produce, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self.going.set()
        self.thread.start()

    def pause(self) -> None:
        """Deliver every event that was begun, and write no more until ``resume``."""
        self.going.clear()
        if not self.idle.wait(PATIENCE_S):
            raise TimeoutError("traffic: the broker does not take what was written before its restart")
        self.check()

    def resume(self) -> None:
        """Continue to write."""
        self.idle.clear()
        self.going.set()

    def end(self) -> None:
        """Deliver every event that was begun, and end."""
        self.ended.set()
        self.going.set()
        self.thread.join(PATIENCE_S)
        self.check()

    def check(self) -> None:
        """Check that everything could be written in time. Raises: what went wrong."""
        if self.failure is not None:
            raise self.failure

    def _produce(self) -> None:
        try:
            common = {
                "bootstrap.servers": self.servers,
                "linger.ms": 5,
                "compression.type": "lz4",
                "log_level": 0,  # the broker is stopped on purpose
            }
            plain = Producer(common)
            careful = Producer({**common, "transactional.id": f"{self.topic}-traffic"})
            careful.init_transactions(PATIENCE_S)
            while not self.ended.is_set():
                if not self.going.is_set():
                    self.idle.set()
                    self.going.wait()
                    continue
                self._write(plain, 25 * self.load)
                plain.flush(PATIENCE_S)
                if self.rng.random() < 0.3:
                    self._transaction(careful)
                time.sleep(25 / EVENTS_PER_S)
        except BaseException as failure:  # raised in ``check``
            self.failure = failure
            self.idle.set()

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        self._write(producer, 5)
        if self.rng.random() < 0.5:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)

    def _write(self, producer: Producer, events: int) -> None:
        for _ in range(events):
            at_ms = int(time.time() * 1000) - self.rng.randrange(_LONGEST_LAG_MS)
            event: dict[str, object] = {
                "user": f"u{self.rng.randrange(10**6)}",
                "at": at_ms,
                "page": self.rng.choice(PAGES),
                "country": self.rng.choice(COUNTRIES),
                "member": f"m{self.rng.randrange(_MEMBERS)}",
                "term": f"term-{at_ms // _TERM_MS}-{int(self.rng.paretovariate(_RARE))}",
            }
            if self.rng.random() < 0.5:
                event["amount"] = self.rng.randrange(-20, 120) / 4
            if self.rng.random() < _REFUSED:
                event |= {"at": "soon", "term": f"term-0-{self.rng.randrange(10**6)}"}
            idle = self.rng.random() < 0.002
            partition = _IDLE if idle else self.rng.randrange(_IDLE)
            producer.produce(
                self.topic, json.dumps(event), partition=partition, on_delivery=self._delivered(at_ms)
            )

    def _delivered(self, at_ms: int) -> object:
        def note(failure: KafkaError | None, message: Message) -> None:
            # The event was purged, because its transaction was aborted.
            if failure is not None and failure.code() != KafkaError._PURGE_QUEUE:
                self.failure = KafkaException(failure)
            elif time.time() - at_ms / 1000 > self.grace_s:
                self.failure = TimeoutError("traffic: an event took longer than the grace; a busy machine?")

        return note
