"""The witness in a topic of a real broker: one writer per stream, committed rows only, no row lost."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from stream_app.core.records import WitnessRow
from stream_app.core.releases.row_values import LARGEST_BYTES, settings_beside, settings_in_row
from stream_app.core.strategy import canonical_json
from stream_app.kafka import cluster as kafka_cluster
from stream_app.kafka.cluster import Cluster
from stream_app.kafka.topics import records_of, topic_facts
from stream_app.ports import OperatorError
from stream_app.sinks.topics import Record
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.stored_format import GENERATIONS, NEWEST
from tests.brokers import Topic
from tests.patience import PATIENCE_S
from tests.stream_app.declared import strategy_of

pytestmark = [pytest.mark.kafka, pytest.mark.anyio]


@pytest.fixture
async def topic(bootstrap_servers: str) -> Topic:
    return await Topic.create(bootstrap_servers, cleanup_policy="compact")


def row(seq: int, epoch: int = 0, text: str = "x", values: bytes = b"") -> WitnessRow:
    fields = {"seq": seq, "epoch": epoch, "bin": 100 + seq, "text": text}
    return WitnessRow(seq, json.dumps(fields).encode(), values)


LARGE = bytes(range(250)) * (LARGEST_BYTES // 250)


@asynccontextmanager
async def opened(topic: Topic, *streams: str, over: Cluster | None = None) -> AsyncIterator[WitnessTopic]:
    """Yield a witness that has claimed the given streams."""
    witness = await WitnessTopic.open(over or Cluster(topic.servers), topic.name)
    try:
        for stream in streams:
            await witness.claim(stream)
        yield witness
    finally:
        await witness.close()


async def test_a_new_topic_has_no_rows(topic: Topic) -> None:
    async with opened(topic, "a") as witness:
        assert await witness.rows("a", 0) == []


async def test_rows_are_kept_in_order_by_stream_and_survive_their_writer(bootstrap_servers: str) -> None:
    topic = Topic(bootstrap_servers, (await Topic.create(bootstrap_servers)).name + "-releases")
    async with opened(topic, "a", "b") as witness:
        facts = await topic_facts(Cluster(topic.servers), topic.name)
        assert facts is not None
        assert (facts.cleanup_policy, facts.partitions) == ("compact", 1)
        assert await witness.head("a") is None
        await witness.append("a", [row(1), row(2)])
        await witness.append("b", [row(1, text="other")])
        await witness.append("a", [row(2), row(3, values=LARGE)])
        assert await witness.head("a") == row(3)[:2]
        assert await witness.head("b") == row(1, text="other")[:2]
    async with opened(topic) as witness:
        assert await witness.head("a") == row(3)[:2]
        assert await witness.rows("a", 1) == [row(2), row(3, values=LARGE)]
        assert await witness.head("c") is None
    async with AIOKafkaConsumer(
        topic.name,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as reader:
        seen = [await asyncio.wait_for(reader.getone(), PATIENCE_S) for _ in range(4)]
    assert [(record.key, record.value) for record in seen] == [
        (b"a/0/101", row(1)[1]),
        (b"a/0/102", row(2)[1]),
        (b"b/0/101", row(1, text="other")[1]),
        (b"a/0/103", row(3)[1]),
    ]


async def test_between_faults_the_writer_reads_nothing(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read would poll, and every answer about the log would then wait for half a second."""
    async with opened(topic, "a", "b") as witness:
        await witness.append("a", [row(1)])
        polls = Counter[str]()
        getmany = AIOKafkaConsumer.getmany

        async def polled(self: Any, *given: Any, **named: Any) -> Any:
            polls["reads"] += 1
            return await getmany(self, *given, **named)

        monkeypatch.setattr(AIOKafkaConsumer, "getmany", polled)
        for seq in range(2, 42):
            await witness.append("a", [row(seq)])
            assert await witness.head("a") == row(seq)[:2]
        assert polls["reads"] == 0
        await witness.close()  # what the writer knows itself needs no connection
        assert (await witness.head("a")) == row(41)[:2]


async def test_a_writer_that_resigned_reads_the_head_again(topic: Topic) -> None:
    async with opened(topic, "a") as first:
        await first.append("a", [row(1)])
        await first.resign("a")
        async with opened(topic, "a") as second:
            await second.append("a", [row(2)])
        assert await first.head("a") == row(2)[:2]


async def test_a_paused_writer_adds_nothing(topic: Topic) -> None:
    async with opened(topic, "a", "b") as first, opened(topic, "a") as second:
        await second.append("a", [row(1)])
        with pytest.raises(OSError, match="ProducerFenced"):
            await first.append("a", [row(2, text="zombie")])
        assert await second.head("a") == row(1)[:2]
        await first.append("b", [row(1)])  # another stream is not affected
        # The writer writes nothing until it claims the stream again.
        with pytest.raises(OSError, match="a is not claimed"):
            await first.append("a", [row(2)])
        await first.claim("a")
        await first.append("a", [row(2)])
        with pytest.raises(OSError, match="kafka: "):
            await second.append("a", [row(3)])
        assert await second.rows("a", 0) == [row(1), row(2)]
    gc.collect()  # a failure that nobody was told of would fail this test now


async def test_the_head_waits_for_an_open_transaction(topic: Topic) -> None:
    other = AIOKafkaProducer(bootstrap_servers=topic.servers, transactional_id=f"other-{topic.name}")
    async with opened(topic, "a") as witness, other:
        await other.begin_transaction()
        await other.send_and_wait(topic.name, b"{}", b"other/0/1")
        looking = asyncio.ensure_future(witness.head("a"))
        await asyncio.sleep(0.3)
        assert not looking.done()  # the last committed row may lie beyond the open transaction
        await other.abort_transaction()
        assert await looking is None


async def test_a_broker_that_never_answers_is_given_up(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(topic.servers)
    async with opened(topic, "a", over=cluster) as witness:
        await witness.append("a", [row(1)])
        with socket.create_server(("127.0.0.1", 0)) as silent:
            object.__setattr__(cluster, "bootstrap_servers", f"127.0.0.1:{silent.getsockname()[1]}")
            monkeypatch.setattr(kafka_cluster, "LONGEST_ANSWER_S", 0.5)
            with pytest.raises(TimeoutError, match=r"no answer for 0\.5 s; see that Kafka runs"):
                await witness.claim("a")
        monkeypatch.undo()
        object.__setattr__(cluster, "bootstrap_servers", topic.servers)
        with pytest.raises(OSError, match="a is not claimed"):
            await witness.append("a", [row(2)])
        await witness.claim("a")
        await witness.append("a", [row(2)])
        assert await witness.rows("a", 0) == [row(1), row(2)]


# A method of a client, which of its calls gets no answer, and what asks it.
QUESTIONS: dict[str, tuple[type, str, int, Callable[[WitnessTopic], Awaitable[object]]]] = {
    "the log's start": (AIOKafkaConsumer, "beginning_offsets", 1, lambda witness: witness.head("b")),
    "the log's end": (AIOKafkaConsumer, "end_offsets", 1, lambda witness: witness.head("b")),
    "the end of what is committed": (AIOKafkaConsumer, "end_offsets", 2, lambda one: one.rows("a", 0)),
    "a transaction": (AIOKafkaProducer, "begin_transaction", 1, lambda one: one.append("a", [row(2)])),
    "the end of a writer": (AIOKafkaProducer, "stop", 1, lambda witness: _claimed_again(witness)),
}


async def _claimed_again(witness: WitnessTopic) -> None:
    """Claim a stream: that its old writer does not end does not matter. Raises: TimeoutError, to say so."""
    await witness.claim("a")
    raise TimeoutError("no answer for 0.3 s; see that Kafka runs")


@pytest.mark.parametrize("question", QUESTIONS)
async def test_no_question_waits_for_ever(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """A client gets no answer and does not heed its first cancelling, as after a broker's restart."""
    client, method, call, ask = QUESTIONS[question]
    real, asked, let_go = getattr(client, method), list[Any](), asyncio.Event()

    async def silent(self: Any, *given: Any) -> Any:
        asked.append(self)
        if len(asked) != call:
            return await real(self, *given)
        with suppress(asyncio.CancelledError):
            await let_go.wait()
        await let_go.wait()
        return None

    async with opened(topic, "a") as witness:
        await witness.append("a", [row(1)])
        with monkeypatch.context() as patch:
            patch.setattr(kafka_cluster, "LONGEST_ANSWER_S", 0.3)
            patch.setattr(client, method, silent)
            with pytest.raises(TimeoutError, match=r"no answer for 0\.3 s; see that Kafka runs"):
                await ask(witness)
        let_go.set()
        if method == "stop":
            await real(asked[0])
        await witness.claim("a")
        await witness.append("a", [row(1), row(2)])
        assert await witness.rows("a", 0) == [row(1), row(2)]


async def test_a_row_of_a_newer_format_is_refused(topic: Topic) -> None:
    async with AIOKafkaProducer(bootstrap_servers=topic.servers) as newer:
        headers = [("format", b"%d" % (NEWEST + 1))]
        await newer.send_and_wait(topic.name, row(1).row, b"a/0/101", headers=headers)
    async with opened(topic, "a") as witness:
        with pytest.raises(OperatorError, match=f"{topic.name}: it has stored format {NEWEST + 1}, and"):
            await witness.head("a")


FOREIGN = [
    (b"a", b"not json"),
    (b"a/0/103", b"not json"),
    (b"a/0/103", b"{}"),
    (b"a/0/103", b"[]"),
    (b"a/0/103", b"5"),
    (b"a/0/103", b'{"seq": "4", "epoch": 0, "bin": 103}'),
    (b"a/0/103", b'{"seq": true, "epoch": 0, "bin": 103}'),
    (b"a/0/103", b'{"seq": 9, "epoch": 0, "bin": 104}'),
    (b"a/0/103", b"\xff\xfe"),
    (b"a/0/103", b"[" * 100_000),
    (b"a/0/103", b""),
    (b"a/0/101", None),
    (b"a/", b"{}"),
    (None, b"a"),
    (b"\xff", b"{}"),
    (b"b/0/101", b'{"seq": 1, "epoch": 0, "bin": 101}'),
]


@pytest.mark.parametrize("place", ["before", "between", "after"])
async def test_records_of_others_and_tombstones_are_read_past(topic: Topic, place: str) -> None:

    async def foreign(when: str) -> None:
        if when == place:
            async with AIOKafkaProducer(bootstrap_servers=topic.servers) as other:
                for key, value in FOREIGN:
                    # The broker refuses a record without a key in a compacted topic.
                    await other.send_and_wait(topic.name, value, key or b"-")

    await foreign("before")
    async with opened(topic, "a") as witness:
        await witness.append("a", [row(1)])
        await foreign("between")
        await witness.append("a", [row(2)])
    await foreign("after")
    async with opened(topic, "a") as witness:
        assert await witness.head("a") == (2, row(2).row)
        assert await witness.rows("a", 0) == [row(1), row(2)]
        await witness.append("a", [row(3)])
        assert await witness.strategy("a") is None
        assert await witness.newest(["a", "b", "c"]) == {"a": 1, "b": 1}


async def test_rows_of_a_generation_tell_its_settings(topic: Topic) -> None:
    """They need a build that knows generations, and so do the last rows of the first one."""
    cluster, strategy = Cluster(topic.servers), strategy_of()
    fields = {"seq": 2, "epoch": 0, "bin": 102, "strategy": strategy.hash} | settings_in_row(
        strategy.to_json()
    )
    text = canonical_json(fields)
    telling = WitnessRow(2, text, settings_beside(strategy, text))
    async with opened(topic, "a", "b") as before:
        await before.append("a", [row(1)])
        await before.append("b", [row(1)])
        assert await before.strategy("a@2") is None
        assert await before.newest(["a", "b", "c"]) == {"a": 1, "b": 1}
    async with opened(topic, "a", "a@2") as witness:
        await witness.append("a", [row(2)])
        await witness.append("a@2", [row(1)])
        assert await witness.strategy("a@2") is None
        await witness.append("a@2", [telling, row(3)])
        assert await witness.strategy("a") is None
        assert await witness.strategy("a@2") == strategy
        assert await witness.newest(["a", "b"]) == {"a": 2, "b": 1}
    records = await records_of(cluster, TopicPartition(topic.name, 0))
    format = ("format", b"%d" % GENERATIONS)
    headers = [list(record.headers) for record in records if record.value]
    values = ("values", telling.values)
    assert headers == [[], [], [format], [format], [values, format], [format]]


async def test_another_row_under_a_known_number_is_refused(topic: Topic) -> None:
    async with opened(topic, "a") as witness:
        await witness.append("a", [row(1)])
        with pytest.raises(OperatorError, match="row 1 of a differs from the store's"):
            await witness.append("a", [row(1, text="y"), row(2)])


async def test_the_head_is_found_far_from_the_end(topic: Topic) -> None:
    async with opened(topic, "a", "b") as witness:
        await witness.append("a", [row(1)])
        await witness.append("b", [row(seq) for seq in range(1, 1500)])
    async with opened(topic) as witness:
        assert await witness.head("a") == row(1)[:2]
        assert await witness.head("b") == row(1499)[:2]


async def test_no_row_of_a_segment_is_looked_for_before_the_segment_before(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic of a year is not read for the head of a segment that has released nothing."""
    async with opened(topic, "a", "a@2", "a@10") as witness:
        await witness.append("a", [row(seq) for seq in range(1, 3000)])
        read = list[int]()

        async def counted(cluster: Cluster, place: TopicPartition, start: int, end: int) -> list[Record]:
            read.append(end - start)
            return list(await records_of(cluster, place, start, end))

        monkeypatch.setattr("stream_app.sinks.witness_topic.records_of", counted)
        assert await witness.head("a@2") is None
        assert sum(read) < 600
        await witness.append("a@2", [row(1)])
        await witness.append("a@10", [row(1)])
        assert await witness.newest(["a"]) == {"a": 10}
    async with opened(topic) as witness:
        assert await witness.head("a@2") == row(1)[:2]
        assert await witness.head("a") == row(2999)[:2]


@pytest.mark.parametrize(
    ("settings", "partitions", "said"),
    [
        ({"cleanup_policy": "delete"}, 1, "has cleanup.policy delete, so releases would be forgotten"),
        ({"cleanup_policy": "compact"}, 2, "has 2 partitions; releases need one"),
    ],
)
async def test_a_topic_that_would_forget_is_refused(
    bootstrap_servers: str, settings: dict[str, str], partitions: int, said: str
) -> None:
    topic = await Topic.create(bootstrap_servers, partitions, **settings)
    with pytest.raises(OperatorError, match=said):
        await WitnessTopic.open(Cluster(topic.servers), topic.name)
