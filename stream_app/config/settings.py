"""The settings of one configuration file as frozen data, checked and in exact units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from dphist.privacy import Neighbours
from dphist.tree.design import Release
from dphist.workloads import Workload
from stream_app.core.alerts.rules import Rule
from stream_app.core.bins import LatePolicy

TimeFormat = Literal["s", "ms", "us", "ns", "iso8601"]

EMBEDDED = "embedded:"  # prefix of a redis.url that starts the service's own server in a directory
DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """How to reach the store.

    Args:
        url: for the worker; None for an embedded server.
        api_url: for the API: a user that can read public keys only; None for an embedded server.
        alerts_url: for alerts: a user that can write their own keys only; None for an embedded server.
        embedded: the directory of the embedded server; None for an external server.
        accept: text by which the operator accepts a server that may lose acknowledged writes.
        largest_clock_skew_us: largest difference between its clock and the worker's at which bins still
        close.
    """

    url: str | None
    api_url: str | None
    embedded: Path | None
    accept: str | None
    alerts_url: str | None = None
    largest_clock_skew_us: int = 5_000_000


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The certificate and key of TLS, as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits on readers' connections.

    Args:
        connections, per_address: open at once; the proxy's connections count only in the total.
        followers: event streams that one reader may follow at once.
        idle_us: how long a connection may be silent between two requests.
        slow_us: time limit for a request to arrive, and for a reader to receive part of an answer.
    """

    connections: int = 1_000
    per_address: int = 64
    followers: int = 50
    idle_us: int = 5_000_000
    slow_us: int = 10_000_000


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Where the API and pages are served, and who may read.

    Args:
        keys: file of API keys; None: no key is needed.
        proxy_header, proxies: the proxy at these addresses has authenticated requests with this header.
        origins: pages of these origins may call the API from a browser.
        requests_per_s: for each key or address; None: no limit.
        tls: None: plain HTTP.
        hosts: accepted host names, besides localhost and addresses.
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
    limits: LimitSettings = LimitSettings()


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Where the operator's metrics are served, and the token to read them. Metrics and token are secret."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """A replay of the past: bins from ``from_us`` to ``to_us``; ``speed`` None is as fast as possible."""

    from_us: int
    to_us: int
    speed: float | None


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """A file as an event log.

    Args:
        identity: the source's name in the ledger, which adds up its measurements: its group, or its path.
        file: its path.
        format: "ndjson" or "csv".
        start: "earliest" or "latest": where a live stream begins in a file that already has events.
        replay: a virtual clock over the past; None follows the file live.
    """

    identity: str
    file: Path
    format: Literal["ndjson", "csv"]
    start: Literal["earliest", "latest"]
    replay: ReplaySettings | None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A Kafka topic as an event log.

    Args:
        identity: the source's name in the ledger, which adds up its measurements: its group, or the topic.
        topic: its name.
        format: of a record's value, "json", "csv" or "avro".
        columns: column names of a CSV topic, whose records have no header line; else empty.
        start: "earliest", "latest", or an instant in microseconds since 1970: the first record written then.
        schema_registry: of an Avro topic, the URL of its registry. SECRET where it holds a password.
        schema_registry_ca: PEM file of certificates to trust for the registry; None for the well-known ones.
    """

    identity: str
    topic: str
    format: Literal["json", "csv", "avro"]
    columns: tuple[str, ...]
    start: Literal["earliest", "latest"] | int
    schema_registry: str | None = field(default=None, repr=False)
    schema_registry_ca: Path | None = None

    @property
    def replay(self) -> None:
        """None: a topic is always followed live."""
        return None


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach the cluster.

    Args:
        bootstrap_servers: host:port, separated by commas.
        group: prefix of the names of consumer groups; workers of one group share the partitions.
        security: authentication settings, with librdkafka's names. SECRET.
    """

    bootstrap_servers: str
    group: str
    security: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """A compacted topic that stores a stream's releases and serves as its witness."""

    stream: str
    topic: str


@dataclass(frozen=True, slots=True)
class TimeSettings:
    """How an event's time decides its bin, and when a bin closes.

    Args:
        field: name of the event's time field, with dots for nested objects.
        format: "s", "ms", "us", "ns" or "iso8601".
        bin_us: length of a bin; one day for calendar days.
        timezone: bins are calendar days of this zone; None for bins of fixed length.
        grace_us: how long after its end a bin closes.
        epoch_bins: bins in an epoch.
        first_us: start of the first bin; None: the bin in which a live stream first starts.
        max_ahead_bins: how many bins an event may be beyond the next bin to close.
    """

    field: str
    format: TimeFormat
    bin_us: int
    timezone: str | None
    grace_us: int
    epoch_bins: int
    first_us: int | None
    max_ahead_bins: int


@dataclass(frozen=True, slots=True)
class UserSettings:
    """The unit user: ``max_events`` events of each user count per epoch; ``field`` holds an event's user."""

    field: str
    max_events: int


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """The privacy guarantee: its epsilon, unit and neighbours.

    Args: accept, the text that accepts a second measurement; where, the file and line of these settings.
    """

    epsilon: Fraction
    unit: Literal["event"] | UserSettings
    neighbours: Neighbours
    private: bool
    accept: str | None
    where: str = field(default="", compare=False)

    @property
    def max_events(self) -> int:
        """The number of events of one unit that count in an epoch."""
        return 1 if self.unit == "event" else self.unit.max_events


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """The tree over time; the planner chooses where a value is None.

    Args: shares of the levels (planned for "level" and None); epochs, the number for which the running count
        since the stream's start is planned (None: no levels over epochs).
    """

    workload: Workload
    release: Release
    branching: tuple[int, ...] | None
    shares: tuple[Fraction, ...] | Literal["level"] | None
    epochs: int | None = None


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Tumbling windows: their length, mechanism, share of epsilon and options."""

    length_us: int
    mechanism: str
    share: Fraction
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class KeySettings:
    """The public list of keys that are counted separately.

    Args:
        field: name of the event's key field, with dots for nested objects.
        names: the list.
        other: whether events with another key, or none, count under "other"; else they are refused.
        total: whether the total over keys is measured too, with its own share of epsilon.
        window: release the counts of all keys in windows; None: each key has a tree over time.
    """

    field: str
    names: tuple[str, ...]
    other: bool
    total: bool
    window: WindowSettings | None = None


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """A value whose distribution is counted: ``buckets`` of equal width from ``low`` to ``high``.

    With ``window`` it is released once per window; otherwise it is counted live, for any range of time.
    """

    field: str
    low: Fraction
    high: Fraction
    buckets: int
    window: WindowSettings | None = None


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One stream: its source, time, privacy, tree and other axes; ``where`` is its file and line."""

    name: str
    source: SourceSettings | TopicSettings
    time: TimeSettings
    privacy: PrivacySettings
    tree: TreeSettings
    late: LatePolicy
    keys: KeySettings | None = None
    value: ValueSettings | None = None
    where: str = field(default="", compare=False)

    @property
    def window(self) -> WindowSettings | None:
        """The stream's tumbling windows; None if it has none."""
        return next((axis.window for axis in (self.value, self.keys) if axis and axis.window), None)

    @property
    def has_axes(self) -> bool:
        """Whether events are counted separately by key or value."""
        return self.keys is not None or self.value is not None

    @property
    def cell_fields(self) -> tuple[str, ...]:
        """The fields, besides the time, that decide whether and in which cell an event counts."""
        unit = self.privacy.unit
        user = None if unit == "event" else unit
        return tuple(axis.field for axis in (self.keys, self.value, user) if axis is not None)


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Alert rules, and the URLs and topic to notify of their transitions. The URLs may hold secrets."""

    rules: tuple[Rule, ...] = ()
    webhooks: tuple[str, ...] = ()
    alertmanagers: tuple[str, ...] = ()
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """A copy of the ledger outside the store: a file, or a topic."""

    file: Path | None
    topic: str | None


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """How refused records are kept: how long, how many bytes per source, with or without content."""

    keep_us: int
    most_bytes: int
    content: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one configuration file.

    Args:
        file: where it was read.
        redis, api: the store and the public API.
        outputs: topics that receive releases, at most one per stream.
        kafka: the cluster; None if no stream needs one.
        operator: the operator's endpoint; None: closed.
        alerts: rules over released values.
        state_dir: directory of the witness, dead letters and sorted copies. Secret.
        dead_letters: how refused records are kept.
        noise_key_file: a secret shared by workers on several machines; None: keys in the state directory.
        publish_every_us: results become visible at multiples of this.
        ledger: a copy of the ledger outside the store; None for no copy.
        streams: by name, in the order of the file.
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

    def output_of(self, stream: str) -> str | None:
        """Return the topic that receives a stream's releases, or None."""
        return next((output.topic for output in self.outputs if output.stream == stream), None)
