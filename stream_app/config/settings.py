"""The settings of one configuration file as frozen data, checked and in exact units.

``docs/configuration.md`` says what each key means. The classes say only what a field's name does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from stream_app.config.one_log import Logs
from stream_app.core.alerts.rules import Rule
from stream_app.core.alerts.targets import Email, Webhook
from stream_app.core.boards import Annotation, Board
from stream_app.core.budget import Total
from stream_app.core.declaration import Declaration
from stream_app.core.segments.names import base_of, number_of
from stream_app.ports.access import Limits, Scrapes
from stream_app.receiving.field_map import FieldMap

DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """How to reach the store. Args: url, of the worker; embedded, the directory of an embedded server.

    URLs are None for an embedded server, and ``embedded`` for an external one.
    """

    url: str | None
    api_url: str | None
    embedded: Path | None
    accept: str | None
    alerts_url: str | None = None
    largest_clock_skew_us: int = 5_000_000
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class TlsSettings:
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Where the API and pages are served, and who may read.

    Args: keys, None: no key is needed; hosts, besides localhost and addresses; url, without a slash at the
        end; operator, where this process's own metrics are served, None: nowhere.
    """

    host: str
    port: int
    keys: Path | None = None
    proxy_header: str | None = None
    proxies: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    requests_per_s: float | None = None
    tls: TlsSettings | None = None
    hosts: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    url: str | None = None
    timezone: str = "UTC"
    operator: OperatorSettings | None = None
    scrapes: Scrapes = field(default_factory=Scrapes)


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Where the operator's metrics are served, and the token to read them. Metrics and token are secret.

    Args: token_digest, of the token's header, for a process that checks the token and must not know it;
        otlp, the address of a collector to which the metrics are pushed; None: none.
    """

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    token_digest: str | None = None
    otlp: str | None = None


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Where events are received over HTTP, and how spools store them.

    Args:
        directory: of the spools.
        most_body_bytes, most_bytes: the largest request, and the largest spool.
        remember_us, most_keys: for how long, and how many, idempotency keys are remembered.
        maps: the field map of each spool that has one.
        sites: the spool of each site.
    All others are as for the API.
    """

    host: str
    port: int
    directory: Path
    keys: Path | None
    origins: tuple[str, ...]
    hosts: frozenset[str]
    most_body_bytes: int
    most_bytes: int
    remember_us: int
    most_keys: int
    limits: Limits
    tls: TlsSettings | None = None
    operator: OperatorSettings | None = None
    maps: Mapping[str, FieldMap] = field(default_factory=dict)
    sites: Mapping[str, str] = field(default_factory=dict)
    proxy_header: str | None = None
    proxies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """How a file is read as an event log; its public part is the stream's declared ``Log``.

    Args:
        file: a file, the pattern of several files, or the directory of a spool.
        speed: of a replay, in log seconds per second; None: as fast as possible.
        keep_us: how long a spool keeps events; None: this is no spool.
    """

    file: Path
    start: Literal["earliest", "latest"]
    speed: float | None = None
    keep_us: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How a Kafka topic is read as an event log; its public part is the stream's declared ``Log``.

    Args: start, an instant is in microseconds since 1970; schema_registry, a URL, SECRET where it holds a
        password; cluster, in ``kafka.clusters``, empty: the cluster without a name.
    """

    topic: str
    start: Literal["earliest", "latest"] | int
    schema_registry: str | None = field(default=None, repr=False)
    schema_registry_ca: Path | None = None
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How to reach a cluster. Args: security, with librdkafka's names. SECRET."""

    bootstrap_servers: str
    security: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The clusters, by name: the empty one is ``kafka`` itself, the others are ``kafka.clusters``."""

    group: str
    clusters: Mapping[str, ClusterSettings]
    group_protocol: Literal["classic", "consumer"] = "classic"

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the cluster that needs no name."""
        return self.clusters[""].bootstrap_servers


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """A compacted topic that stores a stream's releases and serves as its witness."""

    stream: str
    topic: str
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One stream: its declaration, and how this configuration reads its log.

    Args: accept, the text that accepts a second measurement of the same events; until_us, where the stream
        ends for good; keep_us, of the releases of an epoch after its end, None: for ever; where,
        privacy_where, file and line of the stream, and of its section ``privacy``.
    """

    name: str
    source: SourceSettings | TopicSettings
    declared: Declaration
    accept: str | None = None
    title: str = ""
    total: Total | None = None
    annotations: tuple[Annotation, ...] = ()
    until_us: int | None = None
    keep_us: int | None = None
    where: str = field(default="", compare=False)
    privacy_where: str = field(default="", compare=False)

    @property
    def base(self) -> str:
        """The stream's name in the configuration, which all its segments have."""
        return base_of(self.name)

    @property
    def number(self) -> int:
        return number_of(self.name)


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Alert rules, and the targets that are notified of their transitions. URLs may hold secrets."""

    rules: tuple[Rule, ...] = ()
    webhooks: tuple[Webhook, ...] = ()
    alertmanagers: tuple[str, ...] = ()
    topic: str | None = None
    cluster: str = ""
    operator: OperatorSettings | None = None
    email: Email | None = None


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """A copy of the ledger outside the store: a file, or a topic."""

    file: Path | None
    topic: str | None
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """How refused records are kept: how long, how many bytes per source, with or without content.

    Args: topic, that gets the letters, too; None: files only. cluster, of that topic.
    """

    keep_us: int
    most_bytes: int
    content: bool
    topic: str | None = None
    cluster: str = ""


@dataclass(frozen=True)
class Settings:
    """All settings of one configuration file.

    Args: state_dir, of the witness, dead letters and sorted copies, secret; noise_key_file, None: keys in the
        state directory; ingest, None if no stream has a spool; ended, segments of these streams that have
        ended, which a worker runs no more; logs, which names of logs may mean the same events, once the
        ledger's names are known.
    """

    file: Path
    redis: RedisSettings
    api: ApiSettings
    state_dir: Path
    noise_key_file: Path | None
    publish_every_us: int
    streams: tuple[StreamSettings, ...]
    operator: OperatorSettings | None = None
    alerts: AlertSettings = AlertSettings()
    dead_letters: DeadLetterSettings = DeadLetterSettings(7 * DAY_US, 100 * 10**6, content=False)
    kafka: KafkaSettings | None = None
    outputs: tuple[OutputSettings, ...] = ()
    ledger: LedgerSettings | None = None
    ingest: IngestSettings | None = None
    boards: tuple[Board, ...] = ()
    ended: frozenset[str] = frozenset()
    logs: Logs = field(default_factory=Logs)

    @property
    def spools(self) -> Mapping[str, Path]:
        sources = (stream.source for stream in self.streams)
        return {
            source.file.name: source.file
            for source in sources
            if isinstance(source, SourceSettings) and source.keep_us is not None
        }

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all streams: one set, however many streams refer to it."""
        return frozenset(stream.name for stream in self.streams) | self.ended

    def output_of(self, stream: str) -> OutputSettings | None:
        return self._outputs.get(stream)

    @cached_property
    def _outputs(self) -> Mapping[str, OutputSettings]:
        return {output.stream: output for output in self.outputs}
