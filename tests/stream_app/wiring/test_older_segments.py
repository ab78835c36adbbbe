"""A start copies what earlier builds wrote to a topic for each later segment, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiokafka import TopicPartition

from stream_app.config.load import load
from stream_app.core.records import WitnessRow
from stream_app.kafka.cluster import Cluster
from stream_app.kafka.topics import records_of
from stream_app.sinks.witness_topic import WitnessTopic
from stream_app.wiring.older_segments import ROWS_AT_ONCE, take_older_rows
from tests.brokers import Topic

pytestmark = pytest.mark.kafka

CONFIG = """
kafka: {{bootstrap_servers: "{servers}", group: g}}
redis: {{url: "redis://127.0.0.1:1"}}
streams:
  clicks:
    source: {{file: log.ndjson}}
    time: {{field: at, format: s, bin: 1s, grace: 0s, epoch: 1h}}
    privacy: {{epsilon: 1}}
outputs:
  - {{stream: clicks, topic: {topic}}}
"""
MANY = ROWS_AT_ONCE + 2
NOTES = b'{"clicks": 1, "clicks@2": 2}'


def rows(seqs: range, text: str = "x") -> list[WitnessRow]:
    """Return rows of a stream."""
    fields = ({"seq": seq, "epoch": 0, "bin": 100 + seq, "text": text} for seq in seqs)
    return [WitnessRow(one["seq"], json.dumps(one).encode()) for one in fields]  # type: ignore[arg-type]


async def written(servers: str, topic: str, stream: str, some: list[WitnessRow], notes: bytes = b"") -> None:
    """Write rows to a topic, which is created if needed."""
    witness = await WitnessTopic.open(Cluster(servers), topic)
    await witness.claim(stream)
    await witness.append(stream, some, notes)
    await witness.close()


async def test_rows_in_a_segment_s_own_topic_are_copied_once(
    tmp_path: Path, bootstrap_servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    servers, topic = bootstrap_servers, (await Topic.create(bootstrap_servers)).name + ".counts"
    (tmp_path / "app.yaml").write_text(CONFIG.format(servers=servers, topic=topic))
    settings = load(tmp_path / "app.yaml", {})
    await written(servers, topic, "clicks", rows(range(1, 5)))
    await written(servers, f"{topic}.2", "clicks@2", rows(range(1, MANY)), NOTES)
    await written(servers, f"{topic}.3", "another@3", rows(range(1, 5)))
    await Topic(servers, f"{topic}.4").create_again(2)

    async def taken() -> tuple[int, dict[str, int], list[WitnessRow]]:
        """Return how many records the topic has after a start, its newest segment, and the rows of this."""
        caplog.clear()
        witness = await WitnessTopic.open(Cluster(servers), topic)
        try:
            await take_older_rows(settings, {("", topic): witness})
            records = await records_of(Cluster(servers), TopicPartition(topic, 0))
            assert await witness.told("clicks@2") == (None, NOTES)
            return len(records), await witness.newest(["clicks"]), await witness.rows("clicks@2", 0)
        finally:
            await witness.close()

    once = await taken()
    assert once[1:] == ({"clicks": 2}, rows(range(1, MANY)))
    assert f"now has the {MANY - 1} rows of generation 2" in caplog.text
    assert await taken() == once
    assert caplog.text == ""
    # A worker of the older build has written on; a part of its rows is here.
    await written(servers, f"{topic}.2", "clicks@2", rows(range(MANY, MANY + 3)))
    assert (await taken())[1:] == ({"clicks": 2}, rows(range(1, MANY + 3)))
    await written(servers, topic, "clicks@2", rows(range(MANY + 3, MANY + 5)))
    assert (await taken())[2] == rows(range(1, MANY + 5))
    # Once the next segment has rows here, those of the earlier one need nothing any more.
    await written(servers, topic, "clicks@3", rows(range(1, 2)))
    await written(servers, f"{topic}.2", "clicks@2", rows(range(MANY + 3, MANY + 9), "y"))
    assert (await taken())[1:] == ({"clicks": 3}, rows(range(1, MANY + 5)))
