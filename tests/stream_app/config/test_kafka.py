"""Settings of Kafka are read exactly. ``refusals`` has the wrong ones."""

from __future__ import annotations

from pathlib import Path

from stream_app.config import (
    ClusterSettings,
    KafkaSettings,
    OutputSettings,
    Settings,
    TopicSettings,
    load_text,
)

TEXT = """
kafka: {bootstrap_servers: "one:9092, two:9092", group: counts}
streams:
  clicks:
    source: {topic: web.clicks, start: latest}
    time: {field: at, format: ms, bin: 5m, grace: 30s, epoch: 1d}
    privacy: {epsilon: 1.0}
"""


def read(text: str = TEXT, environment: dict[str, str] | None = None) -> Settings:
    return load_text(text, Path("/app/app.yaml"), environment or {})


def test_a_topic_is_read_with_its_defaults() -> None:
    settings = read()
    assert settings.kafka == KafkaSettings("counts", {"": ClusterSettings("one:9092,two:9092", {})})
    assert settings.streams[0].source == TopicSettings("web.clicks", "latest")


def test_the_declaration_names_the_topic_and_no_server() -> None:
    told = read().streams[0].declared.plain()
    assert told["source"] == {
        "name": "topic:web.clicks",
        "format": "json",
        "replay": None,
        "topic": "web.clicks",
        "columns": (),
    }
    assert "one:9092" not in str(told)


def test_csv_columns_and_a_start_at_an_instant_are_read() -> None:
    text = TEXT.replace("start: latest", "format: csv, columns: [id, at], start: 1970-01-01T00:00:02Z")
    [stream] = read(text).streams
    assert stream.source == TopicSettings("web.clicks", 2_000_000)
    assert (stream.declared.source.format, stream.declared.source.columns) == ("csv", ("id", "at"))


def test_avro_records_need_a_registry_whose_password_is_shown_nowhere() -> None:
    url = "https://ada:hunter2@registry:8081/"
    settings = read(TEXT.replace("start: latest", f'format: avro, schema_registry: "{url}"'))
    source = settings.streams[0].source
    assert isinstance(source, TopicSettings)
    assert settings.streams[0].declared.source.format == "avro"
    assert source.schema_registry == url.rstrip("/")
    assert "hunter2" not in repr(settings) + str(settings.streams[0].declared)


def test_path_of_registry_certificates_is_relative_to_the_configuration() -> None:
    written = "format: avro, schema_registry: 'https://registry', schema_registry.ssl.ca.location: ca.pem"
    one, plain = (
        read(TEXT.replace("start: latest", text)).streams[0] for text in (written, written.rpartition(",")[0])
    )
    assert isinstance(one.source, TopicSettings)
    assert one.source.schema_registry_ca == Path("/app/ca.pem")
    # How the registry is reached may change while a stream lives.
    assert one.declared == plain.declared


def test_the_records_own_timestamp_is_in_milliseconds() -> None:
    time = read(TEXT.replace("field: at, format: ms", 'field: "@timestamp"')).streams[0].declared.time
    assert (time.field, time.format) == ("@timestamp", "ms")


def test_security_settings_have_librdkafkas_names() -> None:
    kafka = read(
        TEXT.replace(
            "group: counts",
            "group: counts, security.protocol: SASL_SSL, ssl.ca.location: ca.pem, "
            "sasl.mechanism: SCRAM-SHA-512, sasl.username: ada, sasl.password: 1234",
        ),
        {"STREAM_APP_KAFKA_SASL_PASSWORD": "hunter2"},
    ).kafka
    assert kafka is not None
    assert kafka.clusters[""].security == {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/app/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ada",
        "sasl.password": "hunter2",
    }
    assert "hunter2" not in repr(kafka)


OAUTH = "group: counts, security.protocol: sasl_ssl, sasl.mechanism: OAUTHBEARER"
BY_CLIENT = (
    f"{OAUTH}, sasl.oauthbearer.method: oidc, sasl.oauthbearer.client.id: counter, "
    "sasl.oauthbearer.token.endpoint.url: 'https://login.example.org/token', "
    "sasl.oauthbearer.scope: topics, sasl.oauthbearer.extensions: 'logicalCluster=lkc-1', "
    "https.ca.location: ca.pem"
)


def test_tokens_of_a_provider_have_librdkafkas_names_and_the_secret_is_shown_nowhere() -> None:
    secret = {"STREAM_APP_KAFKA_OAUTH_CLIENT_SECRET": "hunter2"}
    kafka = read(TEXT.replace("group: counts", BY_CLIENT), secret).kafka
    assert kafka is not None
    assert kafka.clusters[""].security == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
        "sasl.oauthbearer.client.id": "counter",
        "sasl.oauthbearer.client.secret": "hunter2",
        "sasl.oauthbearer.scope": "topics",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
        "https.ca.location": "/app/ca.pem",
    }
    assert "hunter2" not in repr(kafka)


def test_token_file_is_relative_to_the_configuration() -> None:
    kafka = read(TEXT.replace("group: counts", f"{OAUTH}, sasl.oauthbearer.token.file: token")).kafka
    assert kafka is not None
    assert kafka.clusters[""].security["sasl.oauthbearer.token.file"] == "/app/token"


def test_the_environment_names_another_cluster() -> None:
    there = {"STREAM_APP_KAFKA_BOOTSTRAP_SERVERS": "there:1"}
    kafka = read(TEXT.replace("kafka:", "publish_every: 1s\n#"), there).kafka
    assert kafka == KafkaSettings("private-counts", {"": ClusterSettings("there:1", {})})


def test_output_names_a_stream_and_its_topic() -> None:
    settings = read(TEXT + "outputs: [{stream: clicks, topic: clicks.private}]")
    assert settings.outputs == (OutputSettings("clicks", "clicks.private"),)
    assert (settings.output_of("clicks"), settings.output_of("other")) == (settings.outputs[0], None)


TWO = """
kafka:
  bootstrap_servers: "here:9092"
  clusters:
    eu-west: {bootstrap_servers: "there:9093", security.protocol: sasl_ssl, sasl.username: ada}
streams:
  clicks:
    source: {topic: clicks}
    time: {field: at, format: ms, bin: 5m, grace: 30s, epoch: 1d}
    privacy: {epsilon: 1.0}
  abroad:
    source: {topic: clicks, cluster: eu-west}
    time: {field: at, format: ms, bin: 5m, grace: 30s, epoch: 1d}
    privacy: {epsilon: 1.0}
outputs: [{stream: clicks, topic: clicks.private, cluster: eu-west}, {stream: abroad, topic: clicks.private}]
alerts: {topic: alerts, cluster: eu-west}
ledger: {topic: clicks, cluster: eu-north}
"""


def test_topics_of_several_clusters_are_told_apart_by_cluster_and_name() -> None:
    secret = {"STREAM_APP_KAFKA_EU_WEST_SASL_PASSWORD": "hunter2"}
    settings = read(
        TWO.replace("ledger: {topic: clicks, cluster: eu-north}", "ledger: {topic: costs}"), secret
    )
    assert settings.kafka is not None
    assert {name: found.bootstrap_servers for name, found in settings.kafka.clusters.items()} == {
        "": "here:9092",
        "eu-west": "there:9093",
    }
    assert settings.kafka.clusters["eu-west"].security["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(settings)
    assert (settings.alerts.topic, settings.alerts.cluster) == ("alerts", "eu-west")
    assert [stream.declared.source.name for stream in settings.streams] == [
        "topic:clicks",
        "topic:eu-west/clicks",
    ]
    assert [settings.output_of(name) for name in ("clicks", "abroad")] == [
        OutputSettings("clicks", "clicks.private", "eu-west"),
        OutputSettings("abroad", "clicks.private", ""),
    ]
