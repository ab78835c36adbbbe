"""Dead letters in a real topic: kept as long as files, never waited for, never lost without a word."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from deploy.ports import free_port
from stream_app.core.incoming import Reason, Refusal
from stream_app.kafka.cluster import Cluster
from stream_app.kafka.topics import TopicFacts, create_topic, topic_facts
from stream_app.ports import OperatorError
from stream_app.sinks import dead_letter_topic
from stream_app.sinks.dead_letter_file import DeadLetterFiles, Keeping
from stream_app.sinks.dead_letter_topic import (
    Copies,
    DeadLetterTopic,
    Letter,
    LettersInBoth,
    check_topic,
    topic_settings,
)
from tests.patience import PATIENCE_S, eventually_async

pytestmark = pytest.mark.anyio

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
R = TypeVar("R")


def refusals(*positions: int) -> list[Refusal]:
    return [Refusal("0", position, Reason.LATE, b"{}") for position in positions]


def letters_of(folder: Path) -> list[int]:
    files = sorted(folder.glob("*.ndjson"))
    return [json.loads(line)["position"] for file in files for line in file.read_text().splitlines()]


def opened(cluster: Cluster, topic: str, unsent: list[int]) -> DeadLetterTopic:
    return DeadLetterTopic(cluster, topic, DAY_US, 10**8, unsent.append)


@asynccontextmanager
async def sending(topic: DeadLetterTopic) -> AsyncIterator[None]:
    """Send letters during the block."""
    running = asyncio.create_task(topic.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def letters_in(servers: str, topic: str, number: int) -> list[dict[str, object]]:
    """Return the first letters of a topic."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            return [json.loads((await consumer.getone()).value) for _ in range(number)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize(
    ("policy", "retention_ms", "good"),
    [
        ("delete", 86_400_000, True),
        ("delete", 1_000, True),
        ("delete", 86_400_001, False),
        ("delete", -1, False),
        ("compact", 1_000, False),
        ("compact,delete", 1_000, False),
        ("", None, False),
    ],
)
def test_a_topic_that_keeps_letters_longer_than_files_is_refused(
    policy: str, retention_ms: int | None, good: bool
) -> None:
    facts = TopicFacts("cluster", "topic", 1, policy, 0, retention_ms)
    if good:
        check_topic("letters", facts, DAY_US)
        return
    with pytest.raises(
        OperatorError, match=r"^dead_letters\.topic: letters .*retention\.ms=86400000"
    ) as refused:
        check_topic("letters", facts, DAY_US)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("keep_us", [60_000_000, DAY_US, 7 * DAY_US])
def test_no_letter_of_a_new_topic_is_kept_longer_than_its_file(keep_us: int) -> None:
    settings = topic_settings(keep_us, 10**6)
    kept_ms = int(settings["retention.ms"]) + int(settings["segment.ms"])
    assert 0 < kept_ms * 1_000 <= keep_us


def test_letters_without_room_are_counted_and_logged_and_nothing_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dead_letter_topic, "MOST_WAITING_BYTES", 1_000)
    unsent: list[int] = []

    async def run() -> None:
        topic = opened(Cluster(f"127.0.0.1:{free_port()}"), "letters", unsent)
        await topic.open()  # nobody listens: the worker begins all the same
        files = DeadLetterFiles(tmp_path, Keeping(60, 10**6, content=False))
        both = LettersInBoth(files, topic, "file:clicks")
        async with sending(topic):
            assert await both.write(refusals(*range(20)), ("clicks",)) == [20]
            assert await both.write(refusals(19, 20), ("clicks",)) == [1]
        with pytest.raises(OSError, match=r"127\.0\.0\.1"):
            await topic.close()
        files.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert sum(unsent) == 21
    assert len(unsent) == 3, "at once for those without room, and for those that waited at the end"
    assert letters_of(tmp_path) == list(range(21))
    said = [line.getMessage() for line in caplog.records]
    assert any("letters are not sent, and are in their files" in line for line in said)
    assert any(line.startswith("dead_letters.topic letters: ") and "trying again" in line for line in said)


class Queue:
    """The place of a topic, which keeps the letters."""

    room = 10**6

    def __init__(self) -> None:
        self.positions: list[int] = []

    def put(self, copies: Copies) -> None:
        self.positions += [json.loads(text)["position"] for _, text in copies.letters]
        assert not copies.unsent


async def test_letters_are_made_once_for_both_and_never_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_in, copied_in = list[int](), list[int]()
    monkeypatch.setattr(DeadLetterFiles, "_line", _noting(made_in, DeadLetterFiles._line))
    monkeypatch.setattr(Copies, "add", _noting(copied_in, Copies.add))
    topic = Queue()
    files = DeadLetterFiles(tmp_path, Keeping(60, 10**7, content=True))
    await LettersInBoth(files, topic, "file:clicks").write(refusals(*range(200)), ("clicks",))  # type: ignore[arg-type]
    files.close()
    assert topic.positions == list(range(200))
    assert len(made_in) == len(copied_in) == 200
    assert threading.get_ident() not in {*made_in, *copied_in}


def _noting(threads: list[int], make: Callable[..., R]) -> Callable[..., R]:
    """Return a function that also notes the thread of each call."""

    def noting(*arguments: object) -> R:
        threads.append(threading.get_ident())
        return make(*arguments)

    return noting


def test_a_letter_without_room_is_not_made() -> None:
    copies = Copies("file:clicks", 3_000)
    for refusal in [*refusals(1), Refusal("0", 2, Reason.LATE, b"x" * 5_000), *refusals(*range(3, 50))]:
        copies.add(refusal, b'{"position":%d}' % refusal.position)
    # Room for eleven: each takes 200 bytes of memory, beside a key of 15 or 16 and a text of 39 or 40.
    assert len(copies.letters) == 11
    assert sum(200 + len(key) + len(text) for key, text in copies.letters) == copies.bytes <= 3_000
    assert copies.unsent == 49 - 11
    copies.leave_out_last()
    assert (len(copies.letters), copies.unsent) == (10, 49 - 10)
    assert sum(200 + len(key) + len(text) for key, text in copies.letters) == copies.bytes


async def test_a_disk_that_fails_keeps_no_letter_from_the_topic(tmp_path: Path) -> None:
    topic = Queue()
    (tmp_path / "file").touch()
    files = DeadLetterFiles(tmp_path / "file" / "none", Keeping(60, 10**7, content=False))
    both = LettersInBoth(files, topic, "file:clicks")  # type: ignore[arg-type]
    assert await both.write(refusals(1, 2), ("clicks",)) == [0]
    assert topic.positions == [1, 2]


@pytest.mark.kafka
def test_letters_too_large_for_the_topic_leave_out_no_small_letter(
    tmp_path: Path,
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, unsent, cluster = f"letters-{uuid4().hex}", list[int](), Cluster(bootstrap_servers)
    monkeypatch.setattr(dead_letter_topic, "MOST_AT_ONCE", 50)
    together = list[int]()

    class Watched(DeadLetterTopic):
        async def _sent(self, producer: AIOKafkaProducer, letters: Sequence[Letter]) -> None:
            together.append(len(letters))
            await super()._sent(producer, letters)

    async def run() -> list[object]:
        settings = topic_settings(DAY_US, 10**8) | {"max.message.bytes": "3000"}
        await create_topic(cluster, name, settings)
        topic = Watched(cluster, name, DAY_US, 10**8, unsent.append)
        files = DeadLetterFiles(tmp_path, Keeping(60, 10**8, content=True))
        both = LettersInBoth(files, topic, "file:clicks")
        large = Refusal("0", 50, Reason.LATE, b"x" * 4_000)
        # The small letters take more than one batch of the topic, and more than one part.
        await both.write([*refusals(*range(50)), large, *refusals(*range(51, 100))], ("clicks",))
        async with sending(topic):
            found = await letters_in(bootstrap_servers, name, 99)
        await topic.close()
        files.close()
        return [letter["position"] for letter in found]

    assert asyncio.run(run()) == [position for position in range(100) if position != 50]
    assert unsent == [1]
    assert together == [50, 49]
    [said] = [line for line in caplog.messages if "not sent" in line]
    assert said.endswith(": letters too large for it (3,000 bytes) are not sent, and are in their files")


@pytest.mark.kafka
def test_letters_arrive_in_order_after_an_outage_in_a_topic_made_for_them(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    name, unsent = f"letters-{uuid4().hex}", list[int]()

    async def run() -> Sequence[dict[str, object]]:
        cluster = Cluster(f"127.0.0.1:{free_port()}")
        topic = opened(cluster, name, unsent)
        await topic.open()
        files = DeadLetterFiles(tmp_path, Keeping(60, 10**8, content=True))
        both = LettersInBoth(files, topic, "file:clicks")
        async with sending(topic):
            await both.write(refusals(3, 5), ("clicks",))
            await both.write([Refusal("0", 6, Reason.LATE, b"x" * 2_000_000)])  # no record takes so much
            object.__setattr__(cluster, "bootstrap_servers", bootstrap_servers)  # the brokers are up
            found = await letters_when_there(name)
            await both.write(refusals(8))
            found = await letters_in(bootstrap_servers, name, 3)
        await topic.close()
        files.close()
        facts = await topic_facts(Cluster(bootstrap_servers), name)
        assert facts is not None
        assert (facts.cleanup_policy, facts.partitions) == ("delete", 1)
        check_topic(name, facts, DAY_US)
        return found

    async def letters_when_there(topic: str) -> Sequence[dict[str, object]]:
        async def is_there() -> bool:
            return await topic_facts(Cluster(bootstrap_servers), topic) is not None

        await eventually_async(is_there, "the topic was created")
        return await letters_in(bootstrap_servers, topic, 2)

    found = asyncio.run(run())
    place = {"source": "file:clicks", "partition": "0"}
    assert found[0] == {**place, "position": 3, "streams": ["clicks"], "reason": "late", "record": "{}"}
    assert [letter["position"] for letter in found] == [3, 5, 8]
    assert "streams" not in found[2]
    assert unsent == [1]
    assert letters_of(tmp_path) == [3, 5, 6, 8]


@pytest.mark.kafka
async def test_a_start_refuses_a_topic_that_never_forgets(bootstrap_servers: str) -> None:
    name, cluster = f"letters-{uuid4().hex}", Cluster(bootstrap_servers)
    await create_topic(cluster, name, {"cleanup.policy": "delete", "retention.ms": "-1"})

    async def is_there() -> bool:
        return await topic_facts(cluster, name) is not None

    await eventually_async(is_there, "the topic was created")
    with pytest.raises(OperatorError, match=r"cleanup\.policy=delete, retention\.ms=-1"):
        await opened(cluster, name, []).open()
