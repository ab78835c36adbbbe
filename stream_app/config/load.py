"""Read a configuration file: every section, and the checks between sections."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stream_app.config import values
from stream_app.config.access import read_api, read_ingest, read_operator
from stream_app.config.alerts import read_alerts
from stream_app.config.boards import read_boards
from stream_app.config.document import ConfigError, Section, parse_document
from stream_app.config.exclusions import check_visitors
from stream_app.config.kafka import REGISTRY_CA, read_kafka, read_outputs
from stream_app.config.one_log import Logs
from stream_app.config.settings import IngestSettings, KafkaSettings, Settings, SourceSettings, TopicSettings
from stream_app.config.storage import check_ledgers_node, read_dead_letters, read_ledger, read_redis
from stream_app.config.streams import read_streams
from stream_app.core.visits import VISITOR
from stream_app.ports import ACCEPT_MANAGED
from stream_app.state.address import redis_address

_PUBLIC_INSTANTS = values.duration_between(
    "250ms", "1d", "more often, a busy moment would show; more rarely, releases would seem to have stopped"
)

_EVERY_ADDRESS = {"0.0.0.0", "::", ""}


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read a configuration file. Relative paths in it are relative to its directory.

    Raises: ConfigError, one line: file, line, key, value, remedy.
    """
    return load_text(_text(path, "--config"), path, environment)


def load_text(text: str, path: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read a configuration from text, as if it were in the file ``path``. Raises: ConfigError."""
    return _read(parse_document(text, str(path)), path, environment)


def load_clusters(
    path: Path, option: str, environment: Mapping[str, str] = os.environ
) -> tuple[KafkaSettings | None, tuple[str, Path | None] | None]:
    """Read how a configuration reaches Kafka, and its first schema registry; its streams may be missing.

    Args: option, the one that names the file.
    Returns: the clusters; the registry's URL with the file of its authority, None without a registry.
    Raises: ConfigError.
    """
    document = parse_document(_text(path, option), str(path))
    streams = document.section("streams")
    for name in streams.names():
        source = streams.named(name).section("source")
        if registry := source.take("schema_registry", values.text, None):
            found = registry, source.path_of(REGISTRY_CA, path.parent)
            break
    else:
        found = None
    return read_kafka(document.section("kafka"), path.parent, environment), found


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        reason = getattr(failure, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}; name a file with {option}") from None


def _read(document: Section, path: Path, environment: Mapping[str, str]) -> Settings:
    directory = path.parent
    state = document.section("state")
    state_dir = (directory / state.take("dir", values.text, "./state")).absolute()
    state.finish()
    secrets = document.section("secrets")
    key_file = secrets.path_of("key_file", directory)
    secrets.finish()
    operator = read_operator(document.section("operator"), environment)
    ingest = read_ingest(document.section("ingest"), directory, operator)
    streams = read_streams(document.section("streams"), directory, ingest.directory)
    if not streams:
        raise document.error("streams", "names no stream; add one under it")
    redis = read_redis(document.section("redis"), directory, state_dir, environment)
    settings = Settings(
        file=path,
        redis=redis,
        api=read_api(document.section("api"), directory, operator),
        state_dir=state_dir,
        noise_key_file=key_file,
        publish_every_us=document.take("publish_every", _PUBLIC_INSTANTS, 1_000_000),
        streams=streams,
        alerts=read_alerts(document.section("alerts"), streams, operator),
        boards=read_boards(document.section("boards"), streams),
        dead_letters=read_dead_letters(document.section("dead_letters")),
        operator=operator,
        kafka=read_kafka(document.section("kafka"), directory, environment),
        outputs=document.take("outputs", read_outputs, ()),
        ledger=read_ledger(document.section("ledger"), directory, (state_dir, redis.embedded)),
        logs=Logs(directory, ingest.directory),
    )
    document.finish()
    if settings.spools:
        settings = replace(settings, ingest=ingest)
        _check_ingest(document, settings, ingest)
    elif document.section("ingest").written:
        raise document.error("ingest", "has no use: no stream has source.http; add one or take ingest out")
    _check_ports(document, settings)
    if unknown := settings.api.scrapes.keys_of - settings.names:
        api = document.section("api").section("metrics")
        raise api.error("keys_of", f"names {min(unknown)}, no stream of this file; correct it")
    _check_topics(document, settings)
    _check_witnesses(document, settings)
    if settings.ledger is None:
        check_ledgers_node(document.section("redis"), redis)
        _check_totals(document, settings)
    return settings


def _check_witnesses(document: Section, settings: Settings) -> None:
    """Refuse topics without a shared witness over a Redis whose rows may be lost while workers run.

    Only the worker that released a bin has it in its own witness: another would release it with other noise.
    """
    url, accept = settings.redis.url, settings.redis.accept
    if url is None or (redis_address(url).kind == "server" and accept != ACCEPT_MANAGED):
        return
    for stream in settings.streams:
        if isinstance(stream.source, TopicSettings) and settings.output_of(stream.name) is None:
            raise document.error(
                "outputs",
                f"must name a topic for {stream.name}: this Redis may lose rows while several workers "
                f"run, and they remember them together there; add {{stream: {stream.name}, topic: ...}}",
            )


def _check_totals(document: Section, settings: Settings) -> None:
    """Refuse totals over a ledger whose last second may be lost."""
    stream = next((stream.name for stream in settings.streams if stream.total is not None), None)
    if stream is not None and settings.redis.accept == ACCEPT_MANAGED:
        raise document.section("redis").error(
            "accept",
            f"allows Redis to lose what streams have spent, and streams.{stream}.privacy.total needs it; "
            "write the key ledger",
        )


def _check_ingest(document: Section, settings: Settings, ingest: IngestSettings) -> None:
    """Refuse a spool inside ``state.dir``, which its writer must not enter, and keys that outlive records."""
    section = document.section("ingest")
    if ingest.directory.resolve().is_relative_to(settings.state_dir.resolve()):
        raise section.error("dir", f"{ingest.directory} is in state.dir, which holds secrets; name another")
    for stream in settings.streams:
        keep_us = stream.source.keep_us if isinstance(stream.source, SourceSettings) else None
        if keep_us is not None and keep_us < ingest.remember_us:
            line = f"is longer than streams.{stream.name}.source.keep; shorten it, or keep events longer"
            raise section.error("remember", line)
    for key, spools in (("map", ingest.maps.keys()), ("sites", set(ingest.sites.values()))):
        if unknown := next((one for one in spools if one not in settings.spools), None):
            raise section.error(key, f"names {unknown}, and no stream has source.http: {unknown}; add one")
    for stream in settings.streams:
        source = stream.source
        of_site = isinstance(source, SourceSettings) and source.file.name in ingest.sites.values()
        if of_site and VISITOR in stream.declared.cell_fields:
            check_visitors(document.section("streams").section(stream.name), stream.declared)


def _check_ports(document: Section, settings: Settings) -> None:
    """Refuse one port for two uses: `stream-app run` serves all of them on one machine."""
    ingest, api, alerts = settings.ingest, settings.api, settings.alerts
    uses = [("api", "port", api.host, api.port)]
    if settings.operator is not None:
        uses.append(("operator", "port", settings.operator.host, settings.operator.port))
    if ingest is not None:
        uses.append(("ingest", "port", ingest.host, ingest.port))
    for name, operator in (
        ("api", api.operator),
        ("alerts", alerts.operator),
        ("ingest", ingest and ingest.operator),
    ):
        if operator is not None:
            uses.append((name, "operator_port", operator.host, operator.port))
    for number, (section, key, host, port) in enumerate(uses):
        for other, its_key, its_host, its_port in uses[:number]:
            if port == its_port and (host == its_host or {host, its_host} & _EVERY_ADDRESS):
                said = f"{port} is {other}.{its_key} as well; choose another one"
                raise document.section(section).error(key, said)


def _check_topics(document: Section, settings: Settings) -> None:
    """Refuse topics without a cluster, topics with two uses, and outputs of unknown streams."""
    sources = [stream.source for stream in settings.streams if isinstance(stream.source, TopicSettings)]
    read = {(source.cluster, source.topic) for source in sources}
    written = {(output.cluster, output.topic) for output in settings.outputs}
    alerts = (settings.alerts.cluster, settings.alerts.topic)
    ledger = ("", None) if settings.ledger is None else (settings.ledger.cluster, settings.ledger.topic)
    letters = (settings.dead_letters.cluster, settings.dead_letters.topic)
    named = {place for place in (*read, *written, alerts, ledger, letters) if place[1] is not None}
    if named and settings.kafka is None:
        raise document.error("kafka", "is missing, and topics are named; add kafka: {bootstrap_servers: ...}")
    known = {} if settings.kafka is None else settings.kafka.clusters
    for cluster, topic in sorted((cluster, str(topic)) for cluster, topic in named):
        if cluster not in known:
            said = f"has no clusters.{cluster}, which is named for the topic {topic}; add it, or correct that"
            raise document.error("kafka", said)
    if alerts in read | written:
        raise document.error("alerts", f"go into {alerts[1]}, which holds something else; name another topic")
    if ledger[1] is not None and ledger in read | written | {alerts}:
        raise document.error(
            "ledger", f"goes into {ledger[1]}, which holds something else; name another topic"
        )
    if letters[1] is not None and letters in read | written | {alerts, ledger}:
        raise document.error(
            "dead_letters", f"go into {letters[1]}, which holds something else; name another topic"
        )
    streams = {one.name for one in settings.streams}
    for output in settings.outputs:
        if output.stream not in streams:
            raise document.error("outputs", f"name {output.stream}, no stream of this file; correct it")
        if (output.cluster, output.topic) in read:
            raise document.error(
                "outputs", f"go into {output.topic}, which is read as events; name another topic"
            )
