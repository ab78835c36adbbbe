"""``stream-app init`` over topics: what their records hold, and how the cluster is reached."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from stream_app.config import ClusterSettings, TopicSettings, load, load_text
from stream_app.shell.checks.kafka import kafka_findings
from stream_app.shell.init.answers import Topic, read_registry
from stream_app.shell.init.configuration import configuration
from stream_app.shell.samples.of_log import SchemaHints
from tests import brokers
from tests.registry import Registry, record, serving
from tests.stream_app.shell.initial import PLAIN, folder, init

__all__ = ["folder"]
ANSWERS = {"user": "none", "count": "all", "epsilon": "1", "bin": "1h"}
WHEN = [json.dumps({"when": 1_767_571_200 + n}).encode() for n in range(5)]
AVRO_CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "meta", "type": {"type": "record", "name": "Meta", "fields": [
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}]}},
        {"name": "country", "type": "string"},
    ],
}  # fmt: skip
HEAD = bytes([0, 0, 0, 0, 7])  # of records with schema 7
CLICK = {"meta": {"at": 1_767_571_200_000_000}, "country": "FR"}
RECORDS = {
    "csv": b"FR,2026-01-05T00:00:00Z",
    "json_schema": HEAD + b'{"at": "2026-01-05T00:00:00Z"}',
    "avro": record(7, AVRO_CLICK, CLICK),
    # A Timestamp of 1,767,571,200 seconds, and the text FR.
    "protobuf": HEAD + b"\0" + bytes([0x0A, 6, 8]) + b"\x80\xfe\xeb\xca\x06" + b"\x12\x02FR",
}


def protobuf_click() -> str:
    """Return a schema with a message that has a Timestamp and a text, as a registry serializes it."""
    file = descriptor_pb2.FileDescriptorProto(name="click.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    click = file.message_type.add(name="Click")
    click.field.add(name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp")
    click.field.add(name="country", number=2, type=9, label=1)
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.mark.kafka
def test_a_topic_is_sampled_and_one_that_is_not_there_is_said(folder: Path, bootstrap_servers: str) -> None:
    topic = asyncio.run(_topic(bootstrap_servers))
    answers = {"first": None, "user": None, "bootstrap_servers": bootstrap_servers}
    found = init(**ANSWERS | answers | {"events": f"topic:{topic}", "time": None})
    assert "--time when --user none" in found.output
    made = init(**ANSWERS | answers | {"events": "topic:none-such", "time": "@timestamp", "user": "none"})
    assert made.exit_code == 0, made.output
    assert "no sample, and no proposals: the topic none-such does not exist" in made.output
    (stream,) = load(folder / "stream-app.yaml", {}).streams
    assert (stream.declared.source.topic, stream.declared.time.field) == ("none-such", "@timestamp")


@pytest.mark.kafka
def test_a_topic_of_another_cluster_is_sampled(folder: Path, bootstrap_servers: str) -> None:
    topic = asyncio.run(_topic(bootstrap_servers))
    reach = folder / "reach.yaml"
    reach.write_text(
        "kafka:\n  bootstrap_servers: main.example:9092\n"
        f'  clusters: {{abroad: {{bootstrap_servers: "{bootstrap_servers}"}}}}\n'
    )
    given = ANSWERS | {"first": None, "kafka_from": f"{reach}", "user": "none", "time": "when"}
    made = init(**given | {"events": f"topic:abroad/{topic}"})
    assert made.exit_code == 0, made.output
    assert "no sample" not in made.output
    found = load(folder / "stream-app.yaml", {})
    (stream,) = found.streams
    assert isinstance(stream.source, TopicSettings)
    assert (stream.source.cluster, stream.source.topic) == ("abroad", topic)
    assert found.kafka is not None
    assert found.kafka.clusters["abroad"].bootstrap_servers == bootstrap_servers
    (folder / "stream-app.yaml").unlink()
    refused = init(**given | {"events": f"topic:nowhere/{topic}"})
    assert refused.exit_code == 2
    assert "no cluster has the name nowhere" in refused.output


async def _topic(bootstrap_servers: str, records: Sequence[bytes] = WHEN) -> str:
    topic = await brokers.Topic.create(bootstrap_servers)
    await topic.send(records)
    return topic.name


@pytest.mark.kafka
@pytest.mark.parametrize("form", RECORDS)
def test_records_of_a_topic_say_their_format_and_what_they_lack_is_asked(
    folder: Path, bootstrap_servers: str, form: str
) -> None:
    topic = asyncio.run(_topic(bootstrap_servers, [RECORDS[form]] * 5))
    with serving(Registry()) as registry:
        protobuf = {"schema": protobuf_click(), "schemaType": "PROTOBUF"}
        if form == "avro":
            registry.register(7, AVRO_CLICK)
        else:
            registry.answers |= {f"/schemas/ids/7{query}": protobuf for query in ("", "?format=serialized")}
        time = "meta.at" if form == "avro" else "at"
        options: dict[str, str | None] = {
            "events": f"topic:{topic}",
            "time": time,
            "bootstrap_servers": bootstrap_servers,
        }
        lacking = {"csv": ("columns", "country,at"), "json_schema": None}
        if needed := lacking.get(form, ("schema_registry", registry.url)):
            said = init(**ANSWERS | options)
            assert said.output.endswith(
                f"add these options, or correct their proposals: --{needed[0].replace('_', '-')} ...\n"
            )
            options[needed[0]] = needed[1]
        if form == "avro":
            silent = init(**ANSWERS | options | {"schema_registry": "http://127.0.0.1:1"})
            assert silent.exit_code == 2
            assert "--schema-registry: schema registry http://127.0.0.1:1: no answer" in silent.output
            assert not (folder / "stream-app.yaml").exists()
        made = init(**ANSWERS | options)
        assert made.exit_code == 0, made.output
        settings = load(folder / "stream-app.yaml", {})
        assert settings.streams[0].declared.source.format == form
        found = asyncio.run(kafka_findings(settings))
    assert [one.said for one in found if one.state == "fail"] == []
    assert any("every event of a sample can be decoded" in one.said for one in found), found


@pytest.mark.parametrize("cluster", ["", "eu-west"])
def test_passwords_are_neither_taken_as_options_nor_written(folder: Path, cluster: str) -> None:
    security = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hunter2",
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    clusters = {"": ClusterSettings("main:9092", {})} | {cluster: ClusterSettings("kafka:9093", security)}
    hints = SchemaHints(registry="https://me:hunter2@registry:8081/a")
    answers = replace(PLAIN, events=Topic("clicks", cluster), form="avro", clusters=clusters, hints=hints)
    text = configuration(answers, "clicks", folder / "app.yaml")
    assert "hunter2" not in text
    variable = "STREAM_APP_KAFKA_EU_WEST_SASL_PASSWORD" if cluster else "STREAM_APP_KAFKA_SASL_PASSWORD"
    assert text.count(f"set {variable}\n") == 1
    settings = load_text(text, folder / "app.yaml", {variable: "hunter2"})
    assert settings.kafka is not None
    assert settings.kafka.clusters == clusters
    (stream,) = settings.streams
    assert isinstance(stream.source, TopicSettings)
    assert stream.source.cluster == cluster
    assert stream.source.schema_registry == "https://registry:8081/a"
    with pytest.raises(ValueError, match="name a configuration that has this URL"):
        read_registry("https://me:hunter2@registry:8081")
