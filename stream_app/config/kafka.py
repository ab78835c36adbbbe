"""The settings of Kafka: the section ``kafka``, topics as sources, and the list ``outputs``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from stream_app.config import values
from stream_app.config.document import Section, from_environment
from stream_app.config.plain_yaml import as_written
from stream_app.config.settings import ClusterSettings, KafkaSettings, OutputSettings, TopicSettings
from stream_app.core.declaration import Log, LogFormat
from stream_app.kafka.tokens import (
    AUTHORITY,
    CLIENT_ID,
    CLIENT_SECRET,
    ENDPOINT,
    EXTENSIONS,
    SCOPE,
    TOKEN_FILE,
)

# A cluster of kafka.clusters has its own: STREAM_APP_KAFKA_<NAME>_SASL_PASSWORD, and so on.
_VARIABLES = "STREAM_APP_KAFKA_"
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
REGISTRY_CA = "schema_registry.ssl.ca.location"
CERTIFICATE = "ssl.certificate.location"  # of the client
FILES = ("ssl.ca.location", CERTIFICATE, "ssl.key.location", AUTHORITY, TOKEN_FILE)
_BY_SCHEMA: tuple[LogFormat, ...] = ("avro", "protobuf")
_FORMATS: tuple[LogFormat, ...] = ("json", "csv", "json_schema", *_BY_SCHEMA)
_ORIGINS = values.whole(1, 256, more=": the partitions of the events that the engine counts")
SECRETS = ("sasl.password", "ssl.key.password", CLIENT_SECRET)
_BY_CLIENT = (ENDPOINT, CLIENT_ID, CLIENT_SECRET)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def read_kafka(section: Section, directory: Path, environment: Mapping[str, str]) -> KafkaSettings | None:
    """Read the clusters; None if neither the section nor the environment names one."""
    group = section.take("group", values.name, "private-counts")
    protocol: Literal["classic", "consumer"] = section.take(
        "group_protocol", values.one_of("classic", "consumer"), "classic"
    )
    named = section.section("clusters")
    clusters = {"": _cluster(section, directory, environment, _VARIABLES)}
    for name in named.names():
        clusters[name] = _cluster(named.named(name), directory, environment, variables_of(name))
        _check_is_another(named, name, clusters)
    named.finish()
    return KafkaSettings(group, clusters, protocol) if clusters[""].bootstrap_servers else None


def variables_of(name: str) -> str:
    """Return how the environment variables of a cluster begin.

    >>> variables_of(""), variables_of("eu-west")
    ('STREAM_APP_KAFKA_', 'STREAM_APP_KAFKA_EU_WEST_')
    """
    return f"{_VARIABLES}{name.upper().replace('-', '_')}_" if name else _VARIABLES


def _check_is_another(named: Section, name: str, clusters: Mapping[str, ClusterSettings]) -> None:
    """Refuse a second name of a cluster, and a name whose variables are those of another one.

    The ledger would not add up the costs under both names.
    """
    servers = set(clusters[name].bootstrap_servers.lower().split(","))
    for other, settings in clusters.items():
        shared = servers & set(settings.bootstrap_servers.lower().split(",")) - {""}
        if other != name and shared:
            said = f"kafka.clusters.{other}" if other else "kafka"
            raise named.error(name, f"has the broker {min(shared)} of {said} too; give a cluster one name")
        if other != name and other.replace("-", "_") == name.replace("-", "_"):
            raise named.error(name, f"has the environment variables of {other}; choose another name")


def _cluster(
    section: Section, directory: Path, environment: Mapping[str, str], variables: str
) -> ClusterSettings:
    servers = section.take("bootstrap_servers", _servers, "")
    if environment.get(f"{variables}BOOTSTRAP_SERVERS"):
        servers = from_environment(environment, f"{variables}BOOTSTRAP_SERVERS", _servers) or servers
    security = _security(section, directory)
    section.finish()
    for key, variable in (("sasl.password", "SASL_PASSWORD"), (CLIENT_SECRET, "OAUTH_CLIENT_SECRET")):
        if secret := environment.get(variables + variable):
            security[key] = secret
    _check_login(section, security)
    if section.written and not servers:
        raise section.error("bootstrap_servers", "is missing; name a broker, for example localhost:9092")
    return ClusterSettings(servers, security)


def _check_login(section: Section, security: Mapping[str, str]) -> None:
    """Check that a client which logs in has the settings of its mechanism, and none of another one.

    Secrets are looked for where a client is made: API and watcher read the same file, and have none.
    """
    if not security.get("security.protocol", "").startswith("sasl"):
        section.refuse("sasl.mechanism", "belongs to security.protocol: sasl_ssl; add that, or take it out")
        return
    if security.get("sasl.mechanism") != "OAUTHBEARER":
        for key in (*_BY_CLIENT, SCOPE, EXTENSIONS, TOKEN_FILE, AUTHORITY):
            section.refuse(key, "belongs to sasl.mechanism: OAUTHBEARER; correct one of them")
        needed: tuple[str, ...] = ("sasl.username",)
        said = f"security.protocol {security['security.protocol']} needs it"
    else:
        for key in ("sasl.username", "sasl.password"):
            section.refuse(key, "does not belong to sasl.mechanism: OAUTHBEARER; take it out")
        needed = () if TOKEN_FILE in security else (ENDPOINT, CLIENT_ID)
        said = f"OAUTHBEARER needs it, or {TOKEN_FILE}"
        if TOKEN_FILE in security:
            for key in (*_BY_CLIENT, SCOPE, AUTHORITY):
                section.refuse(key, f"is given beside {TOKEN_FILE}; keep one")
    for key in needed:
        if key not in security:
            raise section.error(key, f"is missing; {said}")


def _security(section: Section, directory: Path) -> dict[str, str]:
    given: dict[str, str | None] = {
        "security.protocol": section.take("security.protocol", _lower(*_PROTOCOLS), None),
        "sasl.mechanism": section.take("sasl.mechanism", values.one_of(*_MECHANISMS), None),
        "ssl.endpoint.identification.algorithm": section.take(
            "ssl.endpoint.identification.algorithm", _lower("https", "none"), None
        ),
    }
    section.take("sasl.oauthbearer.method", values.one_of("oidc"), None)  # librdkafka needs it; we do not
    given[ENDPOINT] = section.take(ENDPOINT, _token_endpoint, None)
    for key in (CLIENT_ID, SCOPE):
        given[key] = section.take(key, values.text, None)
    given[EXTENSIONS] = section.take(EXTENSIONS, _extensions, None)
    for key in ("sasl.username", *SECRETS):
        given[key] = section.take(key, _secret, None, as_written)
    for key in FILES:
        file = section.path_of(key, directory)
        given[key] = None if file is None else str(file)
    return {key: value for key, value in given.items() if value is not None}


def read_topic(section: Section, directory: Path) -> tuple[Log, TopicSettings]:
    """Read a source that names a topic, of events or of counts: its public part, and how it is read."""
    of_counts = "counts" in section.names()
    topic = section.take("counts" if of_counts else "topic", topic_name)
    origins = section.take("origins", _ORIGINS) if of_counts else 0
    form: LogFormat = section.take("format", values.one_of(*_FORMATS), "json")
    columns: tuple[str, ...] = section.take("columns", _columns, ())
    cluster = section.take("cluster", cluster_name, "")
    name = section.take("group", values.group, "") or topic_identity(topic, cluster)
    settings = TopicSettings(
        topic=topic,
        cluster=cluster,
        start=section.take("start", _start, "earliest"),
        schema_registry=section.take("schema_registry", registry_url, None),
        schema_registry_ca=section.path_of(REGISTRY_CA, directory),
    )
    section.refuse("replay", "is not built yet; a topic is followed live; replay a file")
    section.refuse("file", "is given beside topic; keep one")
    section.finish()
    if of_counts and form == "csv":
        raise section.error("format", "csv has no whole numbers; let the engine write json, avro or protobuf")
    if (form == "csv") != bool(columns):
        raise section.error(
            "columns", "list the values of csv records, in order; use them with format: csv only"
        )
    if (form in _BY_SCHEMA) != bool(settings.schema_registry):
        said = "is the URL of the registry of avro and protobuf records; use it with these formats only"
        raise section.error("schema_registry", said)
    if settings.schema_registry_ca is not None and not (settings.schema_registry or "").startswith("https:"):
        raise section.error(REGISTRY_CA, "belongs to a registry of https://; correct one of them")
    return Log(name, form, None, topic=topic, columns=columns, origins=origins), settings


def read_outputs(value: object) -> tuple[OutputSettings, ...]:
    if not isinstance(value, list):
        raise ValueError("must be a list, for example [{stream: clicks, topic: clicks.private}]")
    outputs = tuple(_output(item) for item in value)
    if len({output.stream for output in outputs}) < len(outputs):
        raise ValueError("names a stream twice; its releases go to one topic")
    return outputs


def _output(item: object) -> OutputSettings:
    if not isinstance(item, dict) or not {"stream", "topic"} <= item.keys() <= {"stream", "topic", "cluster"}:
        raise ValueError("each must have a stream and a topic, may have a cluster, and nothing else")
    cluster = cluster_name(item["cluster"]) if "cluster" in item else ""
    return OutputSettings(values.text(item["stream"]), topic_name(item["topic"]), cluster)


def _servers(value: object) -> str:
    servers = [server.strip() for server in values.text(value).split(",")]
    if not all(map(_is_server, servers)):
        raise ValueError("must be host:port, several separated by commas, for example localhost:9092")
    return ",".join(servers)


def _is_server(server: str) -> bool:
    host, _, port = server.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65_535
    return is_port and bool(re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host))


def topic_name(value: object) -> str:
    name = values.text(value)
    if name in (".", "..") or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
        raise ValueError("is not a topic name; use letters, digits, dots, - and _")
    return name


def cluster_name(value: object) -> str:
    return values.name(value)


def topic_identity(topic: str, cluster: str) -> str:
    """Return a topic's name in ledgers and among the logs of this machine.

    >>> topic_identity("clicks", ""), topic_identity("clicks", "eu")
    ('topic:clicks', 'topic:eu/clicks')
    """
    return f"topic:{cluster}/{topic}" if cluster else f"topic:{topic}"


def registry_url(value: object) -> str:
    try:
        parts = values.url(value, ("http", "https"))
    except ValueError:
        parts = None
    if parts is None or parts.query or parts.fragment:
        raise ValueError("must be the registry's URL, for example http://localhost:8081")
    return str(value).rstrip("/")


def _token_endpoint(value: object) -> str:
    """Read where tokens are given; the client's secret goes there, so it must be encrypted or stay here."""
    parts = values.url(value, ("http", "https"))
    if parts.username is not None or parts.fragment:
        raise ValueError("must be a URL without a user; the client's id and secret have keys of their own")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("would send the client's secret in the clear; write https://")
    return str(value)


def _extensions(value: object) -> str:
    written = values.text(value)
    for item in written.split(","):
        name, equals, content = item.strip().partition("=")
        if not (name.isascii() and name.isalpha() and equals and content and content.isprintable()):
            raise ValueError("must be names of letters with values: logicalCluster=lkc-1,identityPoolId=p-2")
    return written


def _start(value: object) -> Literal["earliest", "latest"] | int:
    if value == "earliest" or value == "latest":
        return "earliest" if value == "earliest" else "latest"
    try:
        return values.instant_us(value)
    except ValueError:
        raise ValueError("must be earliest, latest, or an instant such as 2024-01-01T00:00:00Z") from None


def _columns(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or len(set(map(str, value))) < len(value):
        raise ValueError("must be a list of different names, for example [id, at]")
    return tuple(values.text(name) for name in value)


def _lower(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        return values.one_of(*words)(value.lower() if isinstance(value, str) else value)

    return read


def _secret(value: object) -> str:
    if value is None:
        raise ValueError("is empty; write it, in quotes if it is that word, or take it out")
    return str(value)  # any value is accepted here, because an error message would repeat the secret
