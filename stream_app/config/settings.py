"""The settings as frozen data: what one configuration file says, checked, in exact units."""

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

EMBEDDED = "embedded:"  # redis.url that asks for a server of our own in a directory
DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where the state lives.

    Args:
        url: for the worker; None for an embedded server.
        api_url: for the API: a user that can read public keys only; None for an embedded server.
        alerts_url: for alerts: a user that can write their own keys only; None for an embedded server.
        embedded: the directory of the embedded server; None for a server elsewhere.
        accept: words that accept a server which may lose acknowledged writes.
        largest_clock_skew_us: how far its clock may be from the worker's before nothing is closed.
    """

    url: str | None
    api_url: str | None
    embedded: Path | None
    accept: str | None
    alerts_url: str | None = None
    largest_clock_skew_us: int = 5_000_000


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files in PEM."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What readers may hold open, and for how long.

    Args:
        connections, per_address: at once; those of the proxy count in all only.
        followers: streams of events that one reader may follow at once.
        idle_us: how long a connection may be silent between two requests.
        slow_us: how long a request may take to arrive, and a part of an answer to be taken.
    """

    connections: int = 1_000
    per_address: int = 64
    followers: int = 50
    idle_us: int = 5_000_000
    slow_us: int = 10_000_000


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Where pages and answers are served, and to whom.

    Args:
        keys: file of API keys; None: nobody is asked for one.
        proxy_header, proxies: requests from these addresses with this header were let in by a proxy.
        origins: pages of these origins may ask from a browser.
        requests_per_s: for each key or address; None: no limit.
        tls: None: plain HTTP.
        hosts: names by which it may be asked, beside localhost and addresses.
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
    """Where the operator's metrics are served, and the token that opens them. Both are secret."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """A replay of the past: bins from ``from_us`` to ``to_us``; ``speed`` None is as fast as it can."""

    from_us: int
    to_us: int
    speed: float | None


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """An event log.

    Args:
        identity: the name under which the ledger adds up what was measured of it: its group, or its path.
        file: where it is.
        format: "ndjson" or "csv".
        start: "earliest" or "latest": where a live stream begins in a file that already has events.
        replay: a virtual clock over the past instead of the present one.
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
        identity: the name under which the ledger adds up what was measured of it: its group, or the topic.
        topic: its name.
        format: of a record's value, "json", "csv" or "avro".
        columns: of a CSV topic, whose records have no header line; else empty.
        start: "earliest", "latest", or an instant in microseconds since 1970: the first record written since.
        schema_registry: of an Avro topic, the URL of its registry. SECRET where it holds a password.
        schema_registry_ca: PEM file of the certificates that it is trusted by; None: the well-known ones.
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
        """A topic is followed live."""
        return None


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """How to reach the cluster.

    Args:
        bootstrap_servers: host:port, separated by commas.
        group: begins the names of consumer groups; workers of one group share the partitions.
        security: librdkafka's names and values. SECRET.
    """

    bootstrap_servers: str
    group: str
    security: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """A compacted topic that takes a stream's releases, and remembers them: it is its witness."""

    stream: str
    topic: str


@dataclass(frozen=True, slots=True)
class TimeSettings:
    """How an event's time becomes a bin, and when a bin closes.

    Args:
        field: the event's time, dots for nested objects.
        format: "s", "ms", "us", "ns" or "iso8601".
        bin_us: length of a bin; one day for calendar days.
        timezone: calendar days of this zone; None for bins of fixed length.
        grace_us: how long after its end a bin closes.
        epoch_bins: bins in an epoch.
        first_us: start of the first bin; None: the bin in which a live stream first starts.
        max_ahead_bins: bins that an event may lie beyond the next bin to close.
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
    """The user as the unit: ``max_events`` of each count in an epoch; ``field`` names an event's user."""

    field: str
    max_events: int


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """What is promised to whom.

    Args: accept, the words that accept a second measurement; where, the file and line that say all this.
    """

    epsilon: Fraction
    unit: Literal["event"] | UserSettings
    neighbours: Neighbours
    private: bool
    accept: str | None
    where: str = field(default="", compare=False)

    @property
    def max_events(self) -> int:
        """How many events of one unit count in an epoch."""
        return 1 if self.unit == "event" else self.unit.max_events


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """The tree over time; None leaves a choice to the planner.

    Args: shares of the levels; "level" and None have them planned; epochs, over how many the running count
        since the stream's start is planned (None: no levels over epochs).
    """

    workload: Workload
    release: Release
    branching: tuple[int, ...] | None
    shares: tuple[Fraction, ...] | Literal["level"] | None
    epochs: int | None = None


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """Tumbling windows: their length, the mechanism that releases each, its part of epsilon, its options."""

    length_us: int
    mechanism: str
    share: Fraction
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class KeySettings:
    """The keys that are counted apart, a public list.

    Args:
        field: the event's key, dots for nested objects.
        names: the list.
        other: whether events with another key, or none, count under "other"; else they are refused.
        total: whether the total over keys is measured too, at a share of epsilon of its own.
        window: the counts of all keys together are released in windows; None: each key's tree over time.
    """

    field: str
    names: tuple[str, ...]
    other: bool
    total: bool
    window: WindowSettings | None = None


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """A value whose distribution is counted: ``buckets`` of equal width from ``low`` to ``high``.

    With ``window`` it is released in windows, each once; else it is counted live, for any range of time.
    """

    field: str
    low: Fraction
    high: Fraction
    buckets: int
    window: WindowSettings | None = None


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One stream: its source, time line, promise, tree and other axes; ``where`` is its file and line."""

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
        """The windows that its cells are released in, if they are."""
        return next((axis.window for axis in (self.value, self.keys) if axis and axis.window), None)

    @property
    def has_axes(self) -> bool:
        """Whether events are told apart by a key or a value."""
        return self.keys is not None or self.value is not None

    @property
    def cell_fields(self) -> tuple[str, ...]:
        """The fields beside the time that decide where an event counts, and whether it does."""
        unit = self.privacy.unit
        user = None if unit == "event" else unit
        return tuple(axis.field for axis in (self.keys, self.value, user) if axis is not None)


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Rules, and the URLs and the topic where their transitions are told. The URLs may hold secrets."""

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
    """What is kept of refused records: how long, how many bytes a source, with or without content."""

    keep_us: int
    most_bytes: int
    content: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything one configuration file says.

    Args:
        file: where it was read.
        redis, api: the store and the public door.
        outputs: topics that take releases, at most one a stream.
        kafka: the cluster; None where no stream needs one.
        operator: the operator's door; None: closed.
        alerts: rules over released values.
        state_dir: directory of the witness, dead letters and sorted copies. Secret.
        dead_letters: what is kept of refused records.
        noise_key_file: a secret that workers of several machines share; None: keys in the state directory.
        publish_every_us: results become visible at multiples of this.
        ledger: a copy of the ledger outside the store; None: there is none.
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
        """Return the topic that takes a stream's releases, if one does."""
        return next((output.topic for output in self.outputs if output.stream == stream), None)
