"""One contract for both ledgers outside the store: a file, and a topic of a real broker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stream_app.core.ledger import entry_to_json
from stream_app.core.records import LedgerEntry
from stream_app.kafka import cluster as kafka_cluster
from stream_app.kafka.cluster import Cluster
from stream_app.ports import OperatorError, OutsideLedger
from stream_app.sinks.ledger_file import LedgerFile
from stream_app.sinks.ledger_topic import LedgerTopic
from tests.brokers import lose_broker
from tests.patience import PATIENCE_S

ENTRIES = [
    LedgerEntry("people", "a", epoch, 10 * epoch, 10 * epoch + 10, "1/3", "event", "h", until_us=30)
    for epoch in range(3)
]


class Place:
    """How to make a ledger, and how to open it again as another process does."""

    def __init__(self, create: Callable[[], Awaitable[Any]], open_it: Callable[[], OutsideLedger]) -> None:
        self.create, self.open = create, open_it


@pytest.fixture(params=["file", pytest.param("topic", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "topic":
        cluster = Cluster(request.getfixturevalue("bootstrap_servers"))
        topic = f"ledger-{uuid4().hex[:8]}"
        return Place(lambda: LedgerTopic.create(cluster, topic), lambda: LedgerTopic(cluster, topic))
    path = tmp_path / "elsewhere" / "ledger.ndjson"

    async def create() -> LedgerFile:
        return LedgerFile.create(path)

    return Place(create, lambda: LedgerFile(path))


@pytest.mark.anyio
async def test_entries_are_kept_in_order_and_once(place: Place) -> None:
    ledger = await place.create()
    assert await ledger.entries() == ()
    await ledger.append(ENTRIES[:2])
    await place.open().append(ENTRIES)
    await ledger.append(ENTRIES)
    assert await place.open().entries() == tuple(ENTRIES)
    # Another measurement with the same stream and epoch is kept too: no entry is ever replaced.
    other = replace(ENTRIES[0], strategy_hash="i")
    await ledger.append([other])
    assert await place.open().entries() == (*ENTRIES, other)


@pytest.mark.anyio
async def test_a_ledger_that_is_not_there_is_refused_and_not_made(place: Place) -> None:
    for _ in range(2):
        with pytest.raises(OperatorError, match=r"does not exist.*stream-app new-ledger"):
            await place.open().entries()
        with pytest.raises(OperatorError, match=r"does not exist.*stream-app new-ledger"):
            await place.open().append(ENTRIES)


@pytest.mark.anyio
async def test_a_ledger_is_made_once(place: Place) -> None:
    await (await place.create()).append(ENTRIES)
    with pytest.raises(OperatorError, match="a ledger is begun once: keep it"):
        await place.create()
    assert await place.open().entries() == tuple(ENTRIES)


@pytest.mark.anyio
async def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ndjson"
    for text in ("", "some other file\n", '{"private_counts_ledger":"2"}\n'):
        path.write_text(text)
        with pytest.raises(OperatorError, match="is not a ledger of this service"):
            await LedgerFile(path).append(ENTRIES)
        assert path.read_text() == text.rstrip("x")
    path.unlink()
    await LedgerFile.create(path).append(ENTRIES)
    path.write_text(path.read_text() + '{"source": 1}\n')
    with pytest.raises(OperatorError, match="holds a line that is no entry"):
        await LedgerFile(path).entries()


@pytest.mark.anyio
async def test_a_line_that_a_crash_tore_is_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ndjson"
    await LedgerFile.create(path).append(ENTRIES)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert await LedgerFile(path).entries() == tuple(ENTRIES[:2])
    await LedgerFile(path).append(ENTRIES[2:])
    assert path.read_bytes() == whole
    assert os.stat(path).st_mode & 0o077 == 0


def test_processes_that_share_a_file_lose_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ndjson"
    LedgerFile.create(path)
    code = f"""
import asyncio, pathlib, sys
from stream_app.core.records import LedgerEntry
from stream_app.sinks.ledger_file import LedgerFile
ledger = LedgerFile(pathlib.Path({str(path)!r}))
for epoch in range(10):
    entry = LedgerEntry("people", sys.argv[1], epoch, 0, 10, "1", "event", "h")
    asyncio.run(ledger.append([entry]))
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "ab"]
    assert [writer.wait(PATIENCE_S) for writer in writers] == [0, 0]
    entries = asyncio.run(LedgerFile(path).entries())
    for name in "ab":
        assert [entry.epoch for entry in entries if entry.stream == name] == list(range(10))


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("settings", "partitions", "said"),
    [
        ({"cleanup.policy": "delete"}, 1, "is delete"),
        ({"cleanup.policy": "compact"}, 2, "2 partition"),
    ],
)
@pytest.mark.anyio
async def test_a_topic_that_forgets_or_has_no_order_is_refused(
    bootstrap_servers: str, settings: dict[str, str], partitions: int, said: str
) -> None:
    topic = await made(bootstrap_servers, settings, partitions)
    cluster = Cluster(bootstrap_servers)
    for use in (LedgerTopic(cluster, topic).entries, lambda: LedgerTopic.create(cluster, topic)):
        with pytest.raises(OperatorError, match=said):
            await use()


@pytest.mark.kafka
@pytest.mark.anyio
async def test_a_topic_of_something_else_is_refused(bootstrap_servers: str) -> None:
    topic = await made(bootstrap_servers, {"cleanup.policy": "compact"}, 1)
    cluster = Cluster(bootstrap_servers)
    with pytest.raises(OperatorError, match="does not exist"):  # an empty topic is no ledger
        await LedgerTopic(cluster, topic).entries()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"a row", b"key")
    with pytest.raises(OperatorError, match="does not exist"):
        await LedgerTopic(cluster, topic).append(ENTRIES)
    with pytest.raises(OperatorError, match="holds records already"):
        await LedgerTopic.create(cluster, topic)


FOREIGN = [
    (b"key", b"a row"),
    (b"key", b"{}"),
    (b"private_counts_ledger/", b"{}"),
    (b"a/b/c/d/e", b"not json"),
    (b"a/b/0/d", b"not json"),
    (b"key", b"\xff"),
    (b"key", b"[" * 100_000),
    (b"key", b""),
    (b"key", None),
]


@pytest.mark.kafka
@pytest.mark.anyio
async def test_records_of_others_and_tombstones_are_read_past(bootstrap_servers: str) -> None:
    cluster, topic = Cluster(bootstrap_servers), f"ledger-{uuid4().hex[:8]}"
    ledger = await LedgerTopic.create(cluster, topic)
    await ledger.append(ENTRIES[:1])
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as other:
        for key, value in FOREIGN:
            await other.send_and_wait(topic, value, key, partition=0)
        again = LedgerTopic(cluster, topic)
        assert await again.entries() == tuple(ENTRIES[:1])
        await again.append(ENTRIES)
        assert await LedgerTopic(cluster, topic).entries() == tuple(ENTRIES)
        # An entry that a newer build wrote is not read past: the ledger would understate its source.
        await other.send_and_wait(topic, b'{"unknown": 1}', b"log/clicks/7/ab12/-5", partition=0)
    with pytest.raises(OperatorError, match="holds a record that is no entry"):
        await LedgerTopic(cluster, topic).entries()


@pytest.mark.kafka
@pytest.mark.anyio
async def test_an_entry_is_given_up_if_the_broker_is_lost_while_it_is_sent(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that has connected asks for its id until a broker answers, and sends nothing meanwhile."""
    cluster, topic = Cluster(bootstrap_servers), f"ledger-{uuid4().hex[:8]}"
    ledger = await LedgerTopic.create(cluster, topic)
    await ledger.append(ENTRIES[:1])
    tasks = asyncio.all_tasks()
    with monkeypatch.context() as patch:
        lose_broker(patch)
        patch.setattr(kafka_cluster, "LONGEST_ANSWER_S", 0.5)
        with pytest.raises(TimeoutError, match=r"no answer for 0\.5 s; see that Kafka runs"):
            await asyncio.wait_for(ledger.append(ENTRIES), PATIENCE_S)
    assert asyncio.all_tasks() == tasks  # nothing sends the entry later
    await ledger.append(ENTRIES)
    assert await LedgerTopic(cluster, topic).entries() == tuple(ENTRIES)


async def made(servers: str, settings: dict[str, str], partitions: int) -> str:
    topic = f"ledger-{uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
    finally:
        await admin.close()
    return topic


@pytest.mark.kafka
@pytest.mark.anyio
async def test_an_open_transaction_of_another_producer_hides_no_entry(bootstrap_servers: str) -> None:
    """Otherwise a start would not notice a measurement that the store has lost."""
    cluster, topic = Cluster(bootstrap_servers), f"ledger-{uuid4().hex[:8]}"
    ledger = await LedgerTopic.create(cluster, topic)
    await ledger.append(ENTRIES[:1])
    other = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=f"other-{topic}")
    async with other:
        await other.begin_transaction()
        await other.send_and_wait(topic, entry_to_json(ENTRIES[0]), b"again", partition=0)
        await ledger.append(ENTRIES[1:])
        assert await LedgerTopic(cluster, topic).entries() == tuple(ENTRIES)
        await other.abort_transaction()
