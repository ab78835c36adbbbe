"""A real Kafka broker for tests: at KAFKA_BOOTSTRAP_SERVERS, or one that all processes of a run share."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.client import AIOKafkaClient

from deploy.kafka.broker import start

_started: list[subprocess.Popen[bytes]] = []  # started by this process


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a broker."""
    if given := os.environ.get("KAFKA_BOOTSTRAP_SERVERS"):
        yield given
        return
    base = tmp_path_factory.getbasetemp()
    # The processes of one run have neighbouring directories.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kafka"
    folder.mkdir(exist_ok=True)
    yield _join(folder)
    _leave(folder)


def _join(folder: Path) -> str:
    """Return the address of the run's broker. The first process that joins starts it."""
    with _held(folder) as users:
        known = json.load(users) if os.fstat(users.fileno()).st_size else {"users": 0}
        if not known["users"]:
            broker = start(folder / f"broker-{uuid4().hex[:8]}")
            _started.append(broker.process)
            known |= {"servers": broker.bootstrap_servers, "pid": broker.process.pid}
        known["users"] += 1
        _write(users, known)
        return str(known["servers"])


def _leave(folder: Path) -> None:
    """End the broker when the last process has left."""
    with _held(folder) as users:
        known = json.load(users)
        known["users"] -= 1
        _write(users, known)
        if not known["users"]:
            with suppress(ProcessLookupError):
                os.kill(known["pid"], signal.SIGKILL)
        for process in _started:
            if known["users"]:
                process.returncode = 0  # other processes use and end the broker, so Python need not warn
            else:
                process.wait()


@contextmanager
def _held(folder: Path) -> Iterator[IO[str]]:
    path = folder / "users.json"
    path.touch()
    with path.open("r+") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        yield users


def _write(users: IO[str], known: dict[str, Any]) -> None:
    users.seek(0)
    users.truncate()
    json.dump(known, users)
    users.flush()


def settings_untold(client: Any, asked: Sequence[Any], **_: Any) -> dict[str, dict[str, Any]]:
    """Answer like ``KafkaAdminClient.describe_configs`` for a user who may not see settings."""
    return {"topic": {resource.name: {} for resource in asked}}


@dataclass(frozen=True)
class Topic:
    """A separate topic for one test."""

    servers: str
    name: str

    @classmethod
    async def create(cls, servers: str, partitions: int = 1, **settings: str) -> Topic:
        """Create the topic. Args: settings, with _ in place of the dots in Kafka's names."""
        topic = cls(servers, f"events-{uuid4().hex[:12]}")
        await topic.create_again(partitions, **settings)
        return topic

    async def create_again(self, partitions: int = 1, **settings: str) -> None:
        """Create the topic again under the same name."""
        values = {key.replace("_", "."): value for key, value in settings.items()}
        await self._ask(
            lambda admin: admin.create_topics([NewTopic(self.name, partitions, 1, topic_configs=values)])
        )

    async def delete(self) -> None:
        """Delete the topic, and wait until the cluster no longer lists it."""
        await self._ask(lambda admin: admin.delete_topics([self.name]))
        while await self._ask(lambda admin: _error_code(admin, self.name)) == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def grow(self, partitions: int) -> None:
        """Add partitions."""
        await self._ask(
            lambda admin: admin.create_partitions({self.name: NewPartitions(total_count=partitions)})
        )

    async def delete_before(self, offset: int) -> None:
        """Delete the first records of partition 0, as retention does."""
        before = {TopicPartition(self.name, 0): RecordsToDelete(before_offset=offset)}
        await self._ask(lambda admin: admin.delete_records(before))

    async def send(self, values: Sequence[bytes | None], partition: int = 0, **producer: Any) -> None:
        """Append records as one batch, and wait until the cluster acknowledges them."""
        async with AIOKafkaProducer(bootstrap_servers=self.servers, linger_ms=20, **producer) as client:
            sent = [await client.send(self.name, value, b"key", partition) for value in values]
            await asyncio.gather(*sent)

    async def groups(self) -> list[str]:
        """Return the names of all groups of consumers that the cluster knows."""
        return [name for name, *_ in await self._ask(lambda admin: admin.list_consumer_groups())]

    async def committed(self, group: str) -> dict[int, int]:
        """Return the positions that a group has committed, by partition."""
        found = await self._ask(lambda admin: admin.list_consumer_group_offsets(f"{group}.{self.name}"))
        return {place.partition: one.offset for place, one in found.items()}

    async def _ask(self, question: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        try:
            return await question(admin)
        finally:
            await admin.close()


def lose_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no client reach a broker any more: its requests then fail and are tried again after a pause."""

    async def unreachable(self: AIOKafkaClient, *given: Any, **named: Any) -> bool:
        return False

    monkeypatch.setattr(AIOKafkaClient, "ready", unreachable)


async def _error_code(admin: AIOKafkaAdminClient, name: str) -> int:
    [topic] = await admin.describe_topics([name])
    return int(topic["error_code"])
