"""Read a configuration file into settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dphist.workloads import PREFIX
from stream_app.config import values
from stream_app.config.access import read_api
from stream_app.config.alerts import read_alerts
from stream_app.config.axes import check_axes, read_keys, read_value
from stream_app.config.dead_letters import read_dead_letters
from stream_app.config.document import ConfigError, Section, parse_document
from stream_app.config.kafka import read_kafka, read_outputs
from stream_app.config.ledger import check_ledger, read_ledger
from stream_app.config.operator import read_operator
from stream_app.config.privacy import read_privacy
from stream_app.config.redis import read_redis
from stream_app.config.settings import (
    DAY_US,
    Settings,
    SourceSettings,
    StreamSettings,
    TopicSettings,
)
from stream_app.config.source import log_of, read_source
from stream_app.core.bins import Binning
from stream_app.core.declaration import Declaration, Log, Time, TimeFormat, Tree
from stream_app.core.instants import format_instant

_BIN = values.duration_between("100ms", "36500d", "each bin is closed, gets noise and is stored separately")
_PUBLIC_INSTANTS = values.duration_between(
    "250ms", "1d", "more often, a busy moment would show; more rarely, releases would seem to have stopped"
)
MOST_BINS = 2**24  # an epoch of 16 million bins: 16 years of half minutes


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read a configuration file. Relative paths in it are relative to its directory.

    Raises: ConfigError, one line: file, line, key, value, remedy.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        reason = getattr(failure, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}; name a file with --config") from None
    return load_text(text, path, environment)


def load_text(text: str, path: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read a configuration from text, as if it were in the file ``path``. Raises: ConfigError."""
    return _read(parse_document(text, str(path), []), path, environment)


def documented_keys() -> tuple[str, ...]:
    """Return every key path that a file may hold, with ``<name>`` for names: for the reference page."""
    text = """
        kafka: {bootstrap_servers: "h:1"}
        streams: {n: {source: {file: f, replay: {from: 1970-01-01T00:00:00Z, to: 1970-01-01T01:00:00Z}},
          time: {field: t, format: s, bin: 1h, epoch: 1h}, privacy: {epsilon: 1},
          keys: {field: k, list: [a]}, value: {field: v, min: 0, max: 1, buckets: 2}},
          t: {source: {topic: f}, time: {field: t, format: s, bin: 1h, grace: 1h, epoch: 1h},
          privacy: {epsilon: 1, unit: {user: u, max_events: 1}}}}
        api: {proxy: {header: h, addresses: [127.0.0.1]}, tls: {certificate: c, key: k}}
        alerts: {rules: {r: {when: count(n) > 1}}}
        ledger: {file: l}
    """
    known: list[str] = []
    _read(parse_document(text, "", known), Path(), {})
    named = (re.sub(r"^streams\.[nt]\b", "streams.<name>", key) for key in known)
    return tuple(dict.fromkeys(key.replace("alerts.rules.r", "alerts.rules.<name>", 1) for key in named))


def _read(document: Section, path: Path, environment: Mapping[str, str]) -> Settings:
    state = document.section("state")
    state_dir = _beside(path, state.take("dir", values.text, "./state"))
    state.finish()
    secrets = document.section("secrets")
    key_file = secrets.take("key_file", values.text, None)
    secrets.finish()
    streams = _streams(document, path)
    ledger = document.section("ledger")
    settings = Settings(
        file=path,
        redis=read_redis(document.section("redis"), path, environment),
        api=read_api(document.section("api"), path.parent),
        state_dir=state_dir,
        noise_key_file=None if key_file is None else _beside(path, key_file),
        publish_every_us=document.take("publish_every", _PUBLIC_INSTANTS, 1_000_000),
        streams=streams,
        alerts=read_alerts(document.section("alerts"), streams),
        dead_letters=read_dead_letters(document.section("dead_letters")),
        operator=read_operator(document.section("operator"), environment),
        kafka=read_kafka(document.section("kafka"), path, environment),
        outputs=document.take("outputs", read_outputs, ()),
        ledger=read_ledger(ledger, path.parent),
    )
    document.finish()
    _check_ports(document, settings)
    _check_topics(document, settings)
    check_ledger(ledger, settings.ledger, (settings.state_dir, *filter(None, [settings.redis.embedded])))
    return settings


def _check_ports(document: Section, settings: Settings) -> None:
    """Refuse the same port for readers and for the operator, whose metrics are secret."""
    api, operator = settings.api, settings.operator
    if operator is None or operator.port != api.port:
        return
    if operator.host == api.host or {operator.host, api.host} & {"0.0.0.0", "::", ""}:
        raise document.section("operator").error(
            "port", f"{api.port} is the port of the API as well; choose another one"
        )


def _check_topics(document: Section, settings: Settings) -> None:
    """Refuse topics without a cluster, outputs of unknown streams, and outputs into a source topic."""
    read = {stream.source.topic for stream in settings.streams if isinstance(stream.source, TopicSettings)}
    told, ledger = settings.alerts.topic, settings.ledger and settings.ledger.topic
    if (read or settings.outputs or told or ledger) and settings.kafka is None:
        raise document.error("kafka", "is missing, and topics are named; add kafka: {bootstrap_servers: ...}")
    if told is not None and told in read | {output.topic for output in settings.outputs}:
        raise document.error("alerts", f"go into {told}, which holds something else; name another topic")
    if ledger is not None and ledger in read | {told} | {output.topic for output in settings.outputs}:
        raise document.error("ledger", f"goes into {ledger}, which holds something else; name another topic")
    names = {stream.name for stream in settings.streams}
    for output in settings.outputs:
        if output.stream not in names:
            raise document.error("outputs", f"name {output.stream}, which is no stream here; correct it")
        if output.topic in read:
            raise document.error(
                "outputs", f"go into {output.topic}, which is read as events; name another topic"
            )


def _streams(document: Section, path: Path) -> tuple[StreamSettings, ...]:
    section = document.section("streams")
    if not section.names():
        raise document.error("streams", "names no stream; add one under it")
    streams = tuple(_stream(section, name, path) for name in section.names())
    _check_shared_sources(section, streams)
    return streams


def _check_shared_sources(section: Section, streams: tuple[StreamSettings, ...]) -> None:
    """Refuse two streams over one log that could not share a ledger or one pass over it."""
    first: dict[str, StreamSettings] = {}
    for stream in streams:
        other = first.setdefault(log_of(stream.source), stream)
        if _reading(other) != _reading(stream):
            text = (
                f"reads the same log as {other.name}; give both the same source, time.field and time.format"
            )
            raise section.error(stream.name, text)


def _reading(stream: StreamSettings) -> tuple[object, ...]:
    """Return the settings that must be equal for two streams to share one pass over a log."""
    source, time = stream.source, stream.declared.time
    if isinstance(source, SourceSettings):
        source = replace(source, file=source.file.resolve())
    return stream.declared.source, source, time.field, time.format


def _stream(streams: Section, name: str, path: Path) -> StreamSettings:
    try:
        values.name(name)
    except ValueError as refusal:
        raise streams.error(name, str(refusal)) from None
    section = streams.section(name)
    log, source = read_source(section.section("source"), path)
    time = _time(section.section("time"), log)
    privacy, accept = read_privacy(section.section("privacy"))
    declared = Declaration(
        source=log,
        time=time,
        privacy=privacy,
        tree=_tree(section.section("tree")),
        late=section.take("late", values.one_of("next_bin", "drop", "dead_letter"), "next_bin"),
        keys=read_keys(section.section("keys")),
        value=read_value(section.section("value")),
    )
    where, privacy_where = section.where, section.section("privacy").where
    stream = StreamSettings(name, source, declared, accept, where, privacy_where)
    section.finish()
    check_axes(section, stream)
    _check_start(section, stream)
    edges = {"time.first": time.first_us}
    if log.replay is not None:
        edges = {"source.replay.from": log.replay.from_us, "source.replay.to": log.replay.to_us}
    for key, edge_us in edges.items():
        _check_edge(
            section, key, edge_us, Binning(stream.declared.time.bin_us, stream.declared.time.timezone)
        )
    return stream


def _time(section: Section, log: Log) -> Time:
    replay = log.replay
    field = section.take("field", values.text)
    form: TimeFormat
    if log.topic is not None and field == "@timestamp":
        form = section.take("format", values.one_of("ms"), "ms")
    else:
        form = section.take("format", values.one_of("s", "ms", "us", "ns", "iso8601"))
    bin_us = section.take("bin", _BIN)
    zone = section.take("timezone", values.timezone, None)
    grace_us = section.take("grace", values.duration_us, 0 if replay else None)
    epoch_us = section.take("epoch", values.positive_duration_us)
    first_us = section.take("first", values.instant_us, None)
    max_ahead_us = section.take("max_ahead", values.duration_us, bin_us)
    section.finish()
    if zone is not None and bin_us != DAY_US:
        raise section.error("timezone", "belongs to calendar days; write bin: 1d, or take timezone out")
    if grace_us is None:
        raise section.error("grace", "is missing; say how long to wait for late events, for example 5m")
    epoch_bins, rest = divmod(epoch_us, bin_us)
    if rest or not 1 <= epoch_bins <= MOST_BINS:
        whole = values.format_duration(bin_us)
        raise section.error("epoch", f"must be a whole number of bins of {whole}, at most {MOST_BINS}")
    if replay is not None and first_us is not None:
        raise section.error("first", "is for a live stream; a replay starts at replay.from, take one out")
    return Time(
        field=field,
        format=form,
        bin_us=bin_us,
        timezone=zone,
        grace_us=grace_us,
        epoch_bins=epoch_bins,
        first_us=replay.from_us if replay else first_us,
        # The next bin to close lags the clock by the grace, so a punctual event is that far ahead of it.
        max_ahead_bins=-(-(grace_us + max_ahead_us) // bin_us),
    )


def _check_start(section: Section, stream: StreamSettings) -> None:
    """Refuse a start later than ``time.first``, because record times, which producers set, would find it.

    One record with a time in the future would move that start, and so decide whether other records count.
    Events before ``time.first`` are not counted, wherever reading begins.
    """
    start, first_us = stream.source.start, stream.declared.time.first_us
    if isinstance(start, int) and first_us is not None and start > first_us:
        text = (
            f"{format_instant(start)} is later than time.first, which decides what counts; move one of them"
        )
        raise section.error("source.start", text)


def _check_edge(section: Section, key: str, at_us: int | None, binning: Binning) -> None:
    """Refuse an instant inside a bin, because the bin would be counted only in part."""
    if at_us is None:
        return
    bin = int(binning.bin_of([at_us])[0])
    start_us, end_us = binning.start_us(bin), binning.end_us(bin)
    if at_us != start_us:
        near = f"{format_instant(start_us)} or {format_instant(end_us)}"
        raise section.error(key, f"{format_instant(at_us)} is inside a bin; write {near}")


def _tree(section: Section) -> Tree:
    settings = Tree(
        questions=section.take("workload", values.workload, PREFIX).declared(),
        release=section.take("release", values.one_of("anticipating", "causal"), "anticipating"),
        branching=section.take("branching", values.branching, None),
        shares=section.take("shares", values.shares, None),
        epochs=section.take("epochs", values.epochs, None),
    )
    section.finish()
    if isinstance(settings.shares, tuple):
        if settings.branching is None:
            raise section.error("shares", "need branching beside them: one share per level")
        if len(settings.shares) != len(settings.branching):
            raise section.error("shares", "must be as many as the levels in branching")
        if sum(settings.shares) > 1:
            raise section.error("shares", "add up to more than 1; lower them: their sum is what is spent")
    return settings


def _beside(config: Path, path: str) -> Path:
    return (config.parent / path).absolute()
