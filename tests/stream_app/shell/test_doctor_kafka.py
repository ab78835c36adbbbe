"""``stream-app doctor`` checks topics on a real broker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaAdminClient

from deploy.ports import free_port
from stream_app.config import load
from stream_app.config.source import SIGNED_EVENT
from stream_app.shell.checks.kafka import kafka_findings
from stream_app.shell.samples import of_topic
from stream_app.sources.kafka_group import LACKS_RECORDS
from stream_app.wiring.checks import Finding
from tests.brokers import Topic, settings_untold
from tests.certificates import write_certificates
from tests.registry import Registry, serving

CONFIGURATION = """
kafka: {{bootstrap_servers: "{servers}"}}
streams:
  clicks:
    source: {{topic: {topic}, format: json}}
    time: {{field: at, format: ms, bin: 1m, grace: 5s, epoch: 1d}}
    privacy: {{epsilon: 1}}
"""
ALERTS = "alerts: {{topic: {topic}, rules: {{many: {{when: count(clicks) > 1}}}}}}"
SENTINEL = "Ada-Lovelace"
GOOD = b'{"at":1357016400000,"who":"Ada-Lovelace"}'


def dated(ms_from_now: int) -> bytes:
    """Return an event that happened this long after now."""
    return b'{"at":%d,"who":"Ada-Lovelace"}' % (time.time() * 1000 + ms_from_now)


BAD = b'{"at":"Ada-Lovelace"}'


async def findings(folder: Path, servers: str, topic: str, more: str = "") -> list[Finding]:
    (folder / "app.yaml").write_text(CONFIGURATION.format(servers=servers, topic=topic) + more)
    return await kafka_findings(load(folder / "app.yaml", {}))


def examined(
    folder: Path,
    servers: str,
    values: Sequence[bytes | None] = (),
    ahead_ms: int = 0,
    **settings: str,
) -> list[tuple[str, str]]:
    """Write these records to a topic; return the state and the text of each finding about it."""

    async def look() -> list[Finding]:
        topic = await Topic.create(servers, 2, **settings)
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for number, value in enumerate(values):
                now_ms = int(time.time() * 1000) + ahead_ms
                await producer.send_and_wait(
                    topic.name, value, key=b"%d" % number, partition=number % 2, timestamp_ms=now_ms
                )
        return await findings(folder, servers, topic.name)

    found = asyncio.run(look())
    assert SENTINEL not in json.dumps([finding.said for finding in found])
    assert found[0] == Finding("kafka.bootstrap_servers", "ok", f"{servers} answers")
    return [(finding.state, finding.said) for finding in found[1:]]


@pytest.mark.kafka
class TestOverABroker:
    def test_good_topic_is_ok(
        self, tmp_path: Path, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # There are more records than the sample takes. One has no value, so it is no event.
        monkeypatch.setattr(of_topic, "SAMPLE_RECORDS", 102)
        found = examined(tmp_path, bootstrap_servers, [*[dated(0)] * 119, None])
        assert [state for state, _ in found] == ["ok", "ok", "ok"]
        assert "has 2 partition(s)" in found[0][1]
        assert "every event of a sample" in found[1][1]
        assert "with 5s, 0 of 101 events of a sample would be late (0.0%)" in found[2][1]

    def test_topic_with_more_disorder_than_the_grace_is_found(
        self, tmp_path: Path, bootstrap_servers: str
    ) -> None:
        values = [dated(-400_000 if number % 30 == 29 else 0) for number in range(120)]
        *_, (state, said) = examined(tmp_path, bootstrap_servers, values)
        assert state == "warn"
        assert "4 of 120 events of a sample would be late (3.3%)" in said
        assert "m would lose fewer than 0.1%. Choosing it by the events has a cost" in said

    def test_topic_with_history_gets_another_remedy_than_a_longer_grace(
        self, tmp_path: Path, bootstrap_servers: str
    ) -> None:
        *_, (state, said) = examined(tmp_path, bootstrap_servers, [GOOD] * 110)
        assert state == "warn"
        assert "(100.0%); most happened long before they arrived: set time.first" in said

    def test_origins_of_an_engine_that_close_no_bin_are_named(
        self, tmp_path: Path, bootstrap_servers: str
    ) -> None:
        async def look() -> list[Finding]:
            topic = await Topic.create(bootstrap_servers, 1)
            row = '{"at": %d, "origin": %d, "epoch": 0, "sequence": %d, %s}'
            said = '"delta": 3', '"closed": true'
            now_ms = time.time() * 1000
            rows = [row % (now_ms, number, 1 + number, said[number % 2]) for number in range(4)]
            rows += [row % (now_ms - 80_000, 4, 1, said[1]), row % (now_ms, 0, 2, '"delta": "three"')]
            rows += [row % (now_ms, 1, 1, said[1])]  # its engine has begun anew
            await topic.send([one.encode() for one in rows])
            text = CONFIGURATION.format(servers=bootstrap_servers, topic=topic.name)
            text = text.replace("topic: events", "origins: 5, counts: events")
            text = text.replace("epsilon: 1", f'epsilon: 1, signed: "{SIGNED_EVENT}"')
            (tmp_path / "app.yaml").write_text(text)
            return await kafka_findings(load(tmp_path / "app.yaml", {}))

        *_, rows, last = asyncio.run(look())
        assert rows.what == "streams.clicks.source.counts"
        assert (rows.state, "bad_value" in rows.said, "repeated" in rows.said) == ("warn", True, True)
        assert last.what == "streams.clicks.source.origins"
        assert (last.state, "close none of 0, 2, 4, and bins wait" in last.said) == ("warn", True)

    @pytest.mark.parametrize(
        ("deleted_before", "counted", "lacks"),
        [
            (0, 0, False),
            (3, 3, False),
            (3, 5, False),
            (5, 5, False),
            (3, 2, True),
            (5, 0, True),
            (0, 9, True),
        ],
    )
    def test_a_topic_that_lacks_the_next_records_is_found(
        self, tmp_path: Path, bootstrap_servers: str, deleted_before: int, counted: int, lacks: bool
    ) -> None:
        async def look() -> list[Finding]:
            topic = await Topic.create(bootstrap_servers, 1)
            await topic.send([dated(0)] * 5)
            await topic.delete_before(deleted_before)
            text = CONFIGURATION.format(servers=bootstrap_servers, topic=topic.name)
            (tmp_path / "app.yaml").write_text(text)
            return await kafka_findings(load(tmp_path / "app.yaml", {}), {"clicks@2": {"0": counted}})

        said = [one.said for one in asyncio.run(look()) if one.state == "fail"]
        assert [LACKS_RECORDS in one for one in said] == [True] * lacks, said

    def test_empty_topic_is_ok(self, tmp_path: Path, bootstrap_servers: str) -> None:
        assert examined(tmp_path, bootstrap_servers)[1][1].endswith("has no events yet")

    @pytest.mark.parametrize(
        ("values", "state", "words"),
        [([BAD, BAD], "fail", "correct time.field"), ([GOOD, BAD], "warn", "become dead letters")],
    )
    def test_undecodable_events_are_found(
        self, tmp_path: Path, bootstrap_servers: str, values: list[bytes], state: str, words: str
    ) -> None:
        found = examined(tmp_path, bootstrap_servers, values)
        assert found[1][0] == state
        assert words in found[1][1]

    @pytest.mark.parametrize("unit", ["s", "us", "ns", "iso8601"])
    def test_times_in_another_unit_are_found_and_named(
        self, tmp_path: Path, bootstrap_servers: str, unit: str
    ) -> None:
        """The configuration says ms. Every event would be dated far from today, or could not be decoded."""
        ticks = {"s": 1, "us": 10**6, "ns": 10**9}
        begin_s = int(time.time()) - 100
        dates = [begin_s + number for number in range(40)]
        if unit == "iso8601":
            texts = [time.strftime('"%Y-%m-%dT%H:%M:%SZ"', time.gmtime(date)) for date in dates]
        else:
            texts = [str(date * ticks[unit]) for date in dates]
        values = [b'{"at":%s,"who":"Ada-Lovelace"}' % text.encode() for text in texts]
        found = examined(tmp_path, bootstrap_servers, values)
        [(state, said)] = [one for one in found if "did you mean" in one[1]]
        assert state == "fail"
        assert said.endswith(f"when read as {unit}; did you mean {unit}?")
        assert not any("every event of a sample" in one for _, one in found)

    def test_times_in_the_declared_unit_are_not_doubted(self, tmp_path: Path, bootstrap_servers: str) -> None:
        found = examined(tmp_path, bootstrap_servers, [dated(-number) for number in range(40)] + [BAD])
        assert not any("did you mean" in said for _, said in found)

    def test_compacted_topic_and_records_from_the_future_are_found(
        self, tmp_path: Path, bootstrap_servers: str
    ) -> None:
        found = examined(tmp_path, bootstrap_servers, [GOOD], ahead_ms=60_000, cleanup_policy="compact")
        assert [state for state, _ in found] == ["ok", "fail", "ok", "warn"]
        assert "cleanup.policy=compact, so a record may remove earlier ones" in found[1][1]
        assert "ahead of this machine's clock" in found[3][1]

    def test_user_who_may_not_read_the_policy_gets_advice(
        self, tmp_path: Path, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(KafkaAdminClient, "describe_configs", settings_untold)
        found = examined(tmp_path, bootstrap_servers, [GOOD])
        assert [state for state, _ in found] == ["ok", "warn", "ok"]
        assert "check yourself that it has cleanup.policy=delete" in found[1][1]

    @pytest.mark.parametrize(
        ("partitions", "policy", "state"),
        [(1, "compact", "ok"), (1, "delete", "fail"), (2, "compact", "fail")],
    )
    def test_output_topic_must_keep_every_release(
        self, tmp_path: Path, bootstrap_servers: str, partitions: int, policy: str, state: str
    ) -> None:
        async def look() -> list[Finding]:
            events = await Topic.create(bootstrap_servers)
            out = await Topic.create(bootstrap_servers, partitions, cleanup_policy=policy)
            more = f"outputs: [{{stream: clicks, topic: {out.name}}}]"
            return await findings(tmp_path, bootstrap_servers, events.name, more)

        *_, last = asyncio.run(look())
        assert (last.what, last.state) == ("outputs", state)

    def test_missing_topic_of_alerts_is_found(self, tmp_path: Path, bootstrap_servers: str) -> None:
        async def look() -> list[Finding]:
            topic = await Topic.create(bootstrap_servers)
            there = await findings(
                tmp_path, bootstrap_servers, topic.name, ALERTS.format(topic=topic.name + "-a")
            )
            told = await Topic.create(bootstrap_servers, 3)
            return [
                there[-1],
                (await findings(tmp_path, bootstrap_servers, topic.name, ALERTS.format(topic=told.name)))[-1],
            ]

        missing, found = asyncio.run(look())
        assert (missing.what, missing.state) == ("alerts.topic", "fail")
        assert "does not exist; create it" in missing.said
        assert (found.what, found.state) == ("alerts.topic", "ok")
        assert found.said.endswith("has 3 partition(s)")

    def test_missing_topic_is_found(self, tmp_path: Path, bootstrap_servers: str) -> None:
        found = asyncio.run(findings(tmp_path, bootstrap_servers, "nobody-made-it"))
        assert [finding.state for finding in found] == ["ok", "fail"]
        assert "does not exist; create it" in found[1].said


@pytest.mark.kafka
def test_unreachable_schema_registry(tmp_path: Path, bootstrap_servers: str) -> None:
    async def look() -> list[Finding]:
        topic = await Topic.create(bootstrap_servers)
        await topic.send([b"\0\0\0\0\7x"])
        text = CONFIGURATION.replace("json", f'avro, schema_registry: "http://127.0.0.1:{free_port()}"')
        (tmp_path / "app.yaml").write_text(text.format(servers=bootstrap_servers, topic=topic.name))
        return await kafka_findings(load(tmp_path / "app.yaml", {}))

    *_, last = asyncio.run(look())
    assert (last.what, last.state) == ("streams.clicks.source.schema_registry", "fail")
    assert "schema registry http://127.0.0.1:" in last.said


@pytest.mark.kafka
def test_a_schema_registry_over_tls_is_reached_before_there_is_a_record(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    write_certificates(tmp_path, "registry")

    async def look(url: str, more: str) -> list[tuple[str, str]]:
        topic = await Topic.create(bootstrap_servers)
        text = CONFIGURATION.replace("json", f'avro, schema_registry: "{url}"{more}')
        (tmp_path / "app.yaml").write_text(text.format(servers=bootstrap_servers, topic=topic.name))
        found = await kafka_findings(load(tmp_path / "app.yaml", {}))
        return [(one.state, one.what) for one in found if one.what.startswith("streams.clicks.source.")]

    topic_ok, registry = ("ok", "streams.clicks.source.topic"), "streams.clicks.source.schema_registry"
    with serving(Registry(), certificate=(tmp_path / "registry.pem", tmp_path / "registry.key")) as served:
        named = ", schema_registry.ssl.ca.location: ca.pem"
        assert asyncio.run(look(served.url, named)) == [topic_ok, ("ok", registry), topic_ok]
        assert asyncio.run(look(served.url, "")) == [topic_ok, ("fail", registry)]
        missing = ("fail", "streams.clicks.source.format")
        assert asyncio.run(look(served.url, named.replace("ca.pem", "no.pem"))) == [topic_ok, missing]


def test_unreachable_broker_is_found(tmp_path: Path) -> None:
    servers = f"127.0.0.1:{free_port()}"
    [finding] = asyncio.run(findings(tmp_path, servers, "clicks"))
    assert finding.state == "fail"
    assert servers in finding.said


def test_unreachable_broker_is_found_even_if_no_stream_reads_a_topic(tmp_path: Path) -> None:
    servers = f"127.0.0.1:{free_port()}"
    text = CONFIGURATION.replace("topic: {topic}, format: json", "file: clicks.ndjson")
    (tmp_path / "app.yaml").write_text(text.format(servers=servers))
    [finding] = asyncio.run(kafka_findings(load(tmp_path / "app.yaml", {})))
    assert (finding.what, finding.state) == ("kafka.bootstrap_servers", "fail")
    assert servers in finding.said
