"""``stream-app doctor`` checks topics on a real broker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaAdminClient

from deploy.ports import free_port
from stream_app.config import load
from stream_app.config.source import SIGNED_EVENT
from stream_app.shell.checks.kafka import NONE, Positions, kafka_findings
from stream_app.shell.samples import of_topic
from stream_app.sources.kafka_group import LACKS_RECORDS
from stream_app.wiring.checks import Finding
from tests.brokers import Topic, settings_untold
from tests.certificates import write_certificates
from tests.registry import Registry, serving

CONFIGURATION = """
kafka: {bootstrap_servers: "SERVERS"}
streams:
  clicks:
    source: {topic: TOPIC, format: json}
    time: {field: at, format: ms, bin: 1m, grace: 5s, epoch: 1d}
    privacy: {epsilon: 1}
"""
GOOD = b'{"at":1357016400000,"who":"Ada-Lovelace"}'
BAD = b'{"at":"Ada-Lovelace"}'
SENTINEL = "Ada-Lovelace"


def dated(ms_from_now: int, ticks: int = 1) -> bytes:
    """Return an event that happened this long after now. Args: ticks, the number in a millisecond."""
    return b'{"at":%d,"who":"Ada-Lovelace"}' % ((time.time() * 1000 + ms_from_now) * ticks)


async def findings(
    folder: Path, servers: str, topic: str, text: str = CONFIGURATION, counted: Positions = NONE
) -> list[Finding]:
    (folder / "app.yaml").write_text(text.replace("SERVERS", servers).replace("TOPIC", topic))
    return await kafka_findings(load(folder / "app.yaml", {}), counted)


async def examined(
    folder: Path, servers: str, values: Sequence[bytes | None], ahead_ms: int = 0, policy: str = "delete"
) -> list[Finding]:
    """Write these records to a topic; return each finding about it."""
    topic = await Topic.create(servers, 2, cleanup_policy=policy)
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number, value in enumerate(values):
            stamp_ms = int(time.time() * 1000) + ahead_ms
            where = {"key": b"%d" % number, "partition": number % 2, "timestamp_ms": stamp_ms}
            await producer.send_and_wait(topic.name, value, **where)
    found = await findings(folder, servers, topic.name)
    assert SENTINEL not in json.dumps([finding.said for finding in found])
    assert found[0] == Finding("kafka.bootstrap_servers", "ok", f"{servers} answers")
    return found[1:]


LATE = "warn 4 of 120 events of a sample would be late (3.3%)"
HISTORY = "warn (100.0%); most happened long before they arrived: set time.first"
COMPACT = "fail cleanup.policy=compact, so a record may remove earlier ones"


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("values", "ahead_ms", "policy", "expected"),
    [
        # There are more records than the sample takes. One has no value, so it is no event.
        (lambda: [*[dated(0)] * 119, None], 0, "delete", ["ok every event of a", "ok with 5s, 0 of 101"]),
        (lambda: [dated(-400_000 * (n % 30 == 29)) for n in range(120)], 0, "delete", ["ok", LATE]),
        (lambda: [GOOD] * 110, 0, "delete", ["ok", HISTORY]),
        (list, 0, "delete", ["ok has no events yet"]),
        (lambda: [BAD, BAD], 0, "delete", ["fail correct time.field"]),
        (lambda: [GOOD, BAD], 0, "delete", ["warn become dead letters"]),
        (lambda: [*map(dated, range(-40, 0)), BAD], 0, "delete", ["warn become dead letters"]),  # in ms
        (lambda: [dated(-n, 1000) for n in range(40)], 0, "delete", ["fail as us; did you mean us?"]),
        (lambda: [GOOD], 60_000, "compact", [COMPACT, "ok", "warn ahead of this machine's clock"]),
    ],
)
def test_topic_and_its_newest_records_are_checked(
    tmp_path: Path,
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
    values: Callable[[], list[bytes | None]],
    ahead_ms: int,
    policy: str,
    expected: list[str],
) -> None:
    if None in values():
        monkeypatch.setattr(of_topic, "SAMPLE_RECORDS", 102)
    found = asyncio.run(examined(tmp_path, bootstrap_servers, values(), ahead_ms, policy))
    wanted = [one.partition(" ") for one in ["ok has 2 partition(s)", *expected]]
    assert [one.state for one in found] == [state for state, _, _ in wanted], found
    assert all(words in one.said for one, (_, _, words) in zip(found, wanted, strict=True)), found


@pytest.mark.kafka
class TestOverABroker:
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
            text = CONFIGURATION.replace("topic: ", "origins: 5, counts: ")
            text = text.replace("epsilon: 1", f'epsilon: 1, signed: "{SIGNED_EVENT}"')
            return await findings(tmp_path, bootstrap_servers, topic.name, text)

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
            at = {"clicks@2": {"0": counted}}
            return await findings(tmp_path, bootstrap_servers, topic.name, counted=at)

        said = [one.said for one in asyncio.run(look()) if one.state == "fail"]
        assert [LACKS_RECORDS in one for one in said] == [True] * lacks, said

    def test_user_who_may_not_read_the_policy_gets_advice(
        self, tmp_path: Path, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(KafkaAdminClient, "describe_configs", settings_untold)
        found = asyncio.run(examined(tmp_path, bootstrap_servers, [GOOD]))
        assert [one.state for one in found] == ["ok", "warn", "ok"]
        assert "check yourself that it has cleanup.policy=delete" in found[1].said

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
            text = f"{CONFIGURATION}outputs: [{{stream: clicks, topic: {out.name}}}]"
            return await findings(tmp_path, bootstrap_servers, events.name, text)

        *_, last = asyncio.run(look())
        assert (last.what, last.state) == ("outputs", state)

    def test_missing_topics_are_found(self, tmp_path: Path, bootstrap_servers: str) -> None:
        async def look(events: str, alerts: str) -> Finding:
            rules = f"alerts: {{topic: {alerts}, rules: {{many: {{when: count(clicks) > 1}}}}}}"
            return (
                await findings(tmp_path, bootstrap_servers, events, CONFIGURATION + rules * bool(alerts))
            )[-1]

        async def all_of_them() -> list[Finding]:
            there, told = [await Topic.create(bootstrap_servers, number) for number in (1, 3)]
            return [await look("none", ""), await look(there.name, "none"), await look(there.name, told.name)]

        missing, unheard, good = asyncio.run(all_of_them())
        for one, what in ((missing, "streams.clicks.source.topic"), (unheard, "alerts.topic")):
            assert (one.what, one.state, "does not exist; create it" in one.said) == (what, "fail", True)
        assert (good.what, good.state, good.said.endswith("has 3 partition(s)")) == (
            "alerts.topic",
            "ok",
            True,
        )

    @pytest.mark.parametrize(
        ("more", "expected"),
        [
            (", schema_registry.ssl.ca.location: ca.pem", ["ok topic", "ok schema_registry", "ok topic"]),
            ("", ["ok topic", "fail schema_registry"]),
            (", schema_registry.ssl.ca.location: no.pem", ["ok topic", "fail format"]),
        ],
    )
    def test_a_schema_registry_over_tls_is_reached_before_there_is_a_record(
        self, tmp_path: Path, bootstrap_servers: str, more: str, expected: list[str]
    ) -> None:
        write_certificates(tmp_path, "registry")

        async def look(url: str) -> list[Finding]:
            topic = await Topic.create(bootstrap_servers)
            text = CONFIGURATION.replace("json", f'avro, schema_registry: "{url}"{more}')
            return await findings(tmp_path, bootstrap_servers, topic.name, text)

        files = tmp_path / "registry.pem", tmp_path / "registry.key"
        with serving(Registry(), certificate=files) as served:
            found = asyncio.run(look(served.url))
        of_source = [one for one in found if one.what.startswith("streams.clicks.source.")]
        assert [f"{one.state} {one.what.split('.')[-1]}" for one in of_source] == expected


@pytest.mark.parametrize("source", ["topic: TOPIC, format: json", "file: clicks.ndjson"])
def test_unreachable_broker_is_found_even_if_no_stream_reads_a_topic(tmp_path: Path, source: str) -> None:
    servers = f"127.0.0.1:{free_port()}"
    text = CONFIGURATION.replace("topic: TOPIC, format: json", source)
    [finding] = asyncio.run(findings(tmp_path, servers, "clicks", text))
    assert (finding.what, finding.state) == ("kafka.bootstrap_servers", "fail")
    assert servers in finding.said
