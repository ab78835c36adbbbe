"""Requests and answers of the API. OpenAPI is generated from them, so every field states its unit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.asked_keys import MOST_NAMES, AskedKeys, KeyNameError
from stream_app.core.counting.cells import ANY

Confidence = Annotated[
    float, Field(ge=0.5, le=0.999999, description="probability that the interval holds the true number")
]
# A band takes thousands of runs, some seconds per confidence, and is cached. So only these are offered.
BANDS = (0.5, 0.8, 0.9, 0.95, 0.975, 0.98, 0.99, 0.995, 0.999)


def _of_bands(confidence: float) -> float:
    if confidence not in BANDS:
        known = ", ".join(f"{one:g}" for one in BANDS)
        raise ValueError(f"a band is given at one of {known}; write one of them")
    return confidence


BandConfidence = Annotated[
    float,
    AfterValidator(_of_bands),
    Field(
        json_schema_extra={"enum": list(BANDS)},
        description="probability that the band holds everywhere at once",
    ),
]
Time = Annotated[
    str | None,
    Field(
        description="an edge of a bin: RFC 3339 with an offset, or seconds since 1970",
        examples=["2013-01-01T05:00:00Z", "1357016400"],
    ),
]
Kind = Literal["running", "bin", "window"]
View = Literal["unbiased", "first_published", "consistent"]
Method = Literal["top_down", "isotonic"]

MAX_POINTS = 11_000  # the limit of Grafana and Prometheus for one answer
MAX_NODES = 10_000
MAX_WHOLE = 2**53  # beyond it a browser's numbers are not exact, and nothing here has so many bins


class NoQuery(BaseModel):
    """The query of a route without parameters; any parameter is refused."""

    model_config = ConfigDict(extra="forbid")


def _as_list(value: object) -> object:
    return [] if value is None else [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_as_list), Field(max_length=MOST_NAMES)]


class RangeQuery(NoQuery):
    """A half-open range of time, for some keys together or for all."""

    start: Time = None
    end: Time = None
    key: Names = Field(
        default=[],
        description="one of the stream's keys; may be repeated, for several together; default: all of them",
    )
    not_key: Names = Field(
        default=[], description="all of the stream's keys but this one; may be repeated; not beside key"
    )

    @property
    def keys_asked(self) -> AskedKeys | None:
        """The asked keys; None for all. Raises: QueryError."""
        try:
            return AskedKeys.of(self.key, self.not_key)
        except KeyNameError as refusal:
            raise QueryError(str(refusal), "not_key") from None

    @property
    def of_group(self) -> bool:
        """Whether the question may be about a group of keys, which costs more than one key."""
        return len(self.key) > 1 or bool(self.not_key) or any(ANY in key for key in self.key)


class DaysQuery(RangeQuery):
    """A range of time in groups of calendar days, or of bins."""

    days: int | None = Field(
        default=None,
        ge=1,
        le=3_660,
        description="calendar days of timezone in a group, in place of step; 7 begin on Mondays",
    )
    timezone: str | None = Field(
        default=None,
        max_length=80,
        description="time zone of days, whose midnights must be edges of bins; default: UTC",
    )


class CountQuery(RangeQuery):
    """A half-open range of time, and the confidence of the interval."""

    confidence: Confidence = 0.95


class CdfQuery(RangeQuery):
    """A half-open range of time, and the confidence of the band around all cumulative counts."""

    confidence: BandConfidence = 0.95


class QuantileQuery(CdfQuery):
    """The requested quantiles; they come from one band, so all their intervals hold at once."""

    q: list[float] = Field(min_length=1, max_length=100, description="above 0 and below 1; may be repeated")


class SeriesQuery(CountQuery, DaysQuery):
    """A series over a range; ``step`` and ``window`` are numbers of bins."""

    kind: Kind = Field(
        default="running",
        description="running count, counts of step bins each, or counts of sliding windows of bins",
    )
    step: int = Field(default=1, ge=1, le=MAX_WHOLE, description="bins from one point to the next")
    window: int | None = Field(
        default=None, ge=1, le=MAX_WHOLE, description="bins in a window; for kind=window only"
    )
    view: View = Field(
        default="unbiased",
        description="unbiased: best current estimate; first_published: never revised; "
        "consistent: whole numbers that never fall and add up, but biased",
    )
    method: Method | None = Field(
        default=None,
        description="for view=consistent: top_down (default) fixes sums first and then their parts; "
        "isotonic returns the closest running counts that never fall",
    )
    points: int = Field(
        default=MAX_POINTS,
        ge=2,
        le=MAX_POINTS,
        description="largest number of points; downsampling keeps extremes",
    )
    format: Literal["json", "csv", "arrow"] | None = Field(
        default=None, description="format of the answer; overrides the header Accept"
    )


class NodesQuery(NoQuery):
    """A page of released nodes of one level of one epoch."""

    epoch: int | None = Field(default=None, ge=0, le=MAX_WHOLE, description="default: the last epoch")
    level: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WHOLE,
        description="level 1 is just below the root; default: the level of single bins",
    )
    first: int = Field(default=0, ge=0, le=MAX_WHOLE, description="index of the first node to return")
    limit: int = Field(default=1_000, ge=1, le=MAX_NODES, description="largest number of nodes")


class EventsQuery(NoQuery):
    """Where a follower starts; the header Last-Event-ID wins over it."""

    after: int | None = Field(
        default=None,
        ge=0,
        le=MAX_WHOLE,
        description="last seq that you have; 0: all releases; default: the last release",
    )


class Released(BaseModel):
    """The fields of every answer about a stream."""

    stream: str
    private: bool = Field(
        description="false if this stream, another one over its source, or all together protect nobody"
    )
    released_until: str | None = Field(description="end of the last released bin, RFC 3339")
    seq: int = Field(
        description="released bins so far; all of the answer but private is a pure function of it"
    )
    meaning: str = Field(description="what the stream counts, in words; a cap per user leaves events out")
    intervals: str = Field(description="what the stream's intervals are for, in words")


def _absent(value: object) -> bool:
    return value is None


class AboutKeys(Released):
    """The fields of an answer about a group of keys; other answers leave them out."""

    keys: list[str] | None = Field(
        default=None, exclude_if=_absent, description="of a group: the names as asked; key then joins them"
    )
    not_keys: list[str] | None = Field(
        default=None, exclude_if=_absent, description="of a group: the names that are left out of all keys"
    )


class EstimatedCount(BaseModel):
    """A count with its error."""

    value: float = Field(description="unbiased estimate; may be negative or fractional")
    stderr: float
    interval: tuple[float, float] = Field(description="holds the true number with at least this confidence")
    confidence: float


class CountAnswer(AboutKeys, EstimatedCount):
    """Events, or users, in the bins from start to end."""

    counted: str = Field(description="what value and interval are a number of, in words: events")
    key: str | None = Field(default=None, description="key whose events are counted; null: all keys")
    start: str
    end: str


class SummedField(BaseModel):
    """What a stream adds up: a field's number, moved into a range and rounded to units."""

    field: str
    min: float = Field(description="smaller amounts count as this one")
    max: float = Field(description="larger amounts count as this one")
    unit: float = Field(description="amounts are rounded to the nearest multiple")


class EpochCount(EstimatedCount):
    """Users of one epoch, each counted once."""

    counted: str = Field(description="what value and interval are a number of, in words")
    start: str = Field(description="start of the epoch, RFC 3339")
    end: str = Field(description="end of its last released bin, RFC 3339")


class StreamSummary(Released):
    """The short description of a stream."""

    title: str = Field(description="what pages show as the stream's name")
    display_timezone: str = Field(description="time zone in which pages show instants by default")
    source: str = Field(description="group, topic or spool; of a file the stream's title, or the file's name")
    epsilon: str = Field(description="exact decimal or fraction")
    bin: str = Field(description="length of a bin, in words")
    bin_seconds: float | None = Field(description="length of a bin; null for calendar days")
    timezone: str | None = Field(
        description="time zone whose calendar days the bins are; null: bins of equal length"
    )
    start: str = Field(description="start of the first bin, RFC 3339")
    running: EstimatedCount | None = Field(description="events since start; null before the first release")
    counted: str = Field(description="what running is a number of, in words: events")
    this_epoch: EpochCount | None = Field(
        default=None,
        description="users first seen in the last epoch with a release; null: the stream counts no users, or "
        "has released nothing",
    )


class StreamList(BaseModel):
    """All streams, by name."""

    streams: list[StreamSummary]


class EpochAnswer(BaseModel):
    """One epoch: a run of bins served by one tree."""

    epoch: int
    start: str
    end: str = Field(description="end of its last possible bin, or of its last released bin if it has ended")
    bins: int
    bins_released: int
    first_seq: int
    end_reason: str | None


class ColumnsAnswer(BaseModel):
    """A node's columns with the same noise scale: those of one key level at one value level."""

    total: bool = Field(description="true: the total over keys; false: every key")
    value_level: int
    keys: int
    nodes: int = Field(description="of the value level, for each key")
    first: int = Field(description="index of the first column")
    scales: list[float] = Field(description="of the noise, per level of the tree over time")


class KeyFieldAnswer(BaseModel):
    """One of several key fields."""

    field: str
    values: list[str] = Field(description="the listed ones, and other if all else counts under it")


class AxesAnswer(BaseModel):
    """The axes besides time: keys and values."""

    keys: list[str] | None
    key_fields: list[KeyFieldAnswer] | None = Field(
        default=None, description="fields whose values make a key, in the order of its parts; null: one field"
    )
    edges: list[float] | None = Field(description="edges of the buckets of the value; one more than buckets")
    value_field: str | None = Field(description="name of the value's field; null without a value")
    value_branching: list[int]
    value_shares: list[str]
    total_share: str = Field(description="share of epsilon of the total over keys; the keys have the rest")
    columns: list[ColumnsAnswer]


class WindowsAnswer(BaseModel):
    """How a stream's tumbling windows are released."""

    mechanism: str
    options: dict[str, Any] = Field(description="options of the mechanism; all others have their defaults")
    bins: int = Field(description="bins in a window")
    epsilon: str = Field(description="epsilon of each histogram, for one event added or removed")
    histograms: int = Field(description="histograms in a window: one, or one for each key")
    keys: list[str] | None = Field(description="keys with a histogram each; null: one histogram for all keys")
    value_field: str | None = Field(
        description="field whose values a histogram counts; null: a histogram over keys"
    )
    buckets: int


class StreamDetail(StreamSummary):
    """A stream with its tree and epochs; with /nodes, this suffices to compute every answer."""

    noun: str = Field(description="what a chart's points are numbers of: events, users first seen")
    next_release: str | None = Field(
        description="when the next bin becomes visible if no worker is late, RFC 3339; null for replays, "
        "whose clock is not ours"
    )
    ends: str | None = Field(description="where a replay ends, RFC 3339; null for live streams")
    where: str | None = Field(
        default=None, description="which events count, in words; null: every event of the log"
    )
    left_out: str = Field(default="", description="which events no count holds, in words; empty: none")
    warning: str = Field(description="words to write beside every chart; empty if every event counts")
    strategy_hash: str
    branching: list[int] = Field(description="children per node, root to leaf")
    level_epsilons: list[str] = Field(description="exact, levels 1 to height")
    level_stderrs: list[float] = Field(description="standard deviation of one node's noise, per level")
    release: str
    axes: AxesAnswer | None = Field(default=None, description="null: a node is one number")
    windows: WindowsAnswer | None = Field(
        default=None, description="null: no tumbling windows beside the tree"
    )
    sum: SummedField | None = Field(default=None, description="null: the stream adds up no field")
    epochs: list[EpochAnswer]


class SeriesAnswer(AboutKeys):
    """Columns of equal length. Instants are seconds since 1970."""

    key: str | None = None
    kind: Kind
    view: View
    step: int
    window: int | None
    confidence: float
    start: list[float] = Field(description="start of the range that each point counts")
    end: list[float] = Field(description="end of the range that each point counts")
    value: list[float]
    stderr: list[float]
    lower: list[float]
    upper: list[float]
    nodes: list[int] = Field(description="number of noisy counts that each point is computed from")
    days: int | None = Field(default=None, description="calendar days of each point; null: step bins each")
    timezone: str | None = Field(default=None, description="time zone of these days")
    points_available: int
    downsampled: bool
    note: str = Field(description="what was omitted, if anything, and what the intervals do not promise")


class CdfAnswer(AboutKeys):
    """Cumulative counts of a value, with a simultaneous band around them."""

    key: str | None
    start: str
    end: str
    confidence: float
    upto: list[float] = Field(description="upper edge of each bucket; larger values count in the last bucket")
    value: list[float] = Field(
        description="number of events below each edge, unbiased; the last number is all events"
    )
    stderr: list[float]
    lower: list[float] = Field(description="lower edge of the band; never falls, as the true curve")
    upper: list[float]
    consistent: list[int] = Field(description="the nearest whole counts that never fall; biased")


class EstimatedQuantile(BaseModel):
    """A quantile as a range of the value."""

    q: float
    value: float | None = Field(description="within its likeliest bucket; null where no event is seen")
    interval: tuple[float, float] = Field(
        description="edges of buckets; the first and the last bucket also hold what is outside the range"
    )


class QuantilesAnswer(AboutKeys):
    """Quantiles of a value; whenever the band of /cdf holds, all intervals hold."""

    key: str | None
    start: str
    end: str
    confidence: float
    quantiles: list[EstimatedQuantile]


class NodesAnswer(Released):
    """Released noisy values of consecutive nodes, exactly as stored."""

    epoch: int
    level: int
    first: int
    node_bins: int = Field(description="bins under one node")
    scale: float | None = Field(
        description="scale of the discrete Laplace noise of each value; null where it differs: see axes"
    )
    values: list[list[int]] = Field(description="one list of cells per node")
    nodes_released: int


class LedgerRow(BaseModel):
    """One measurement of the source."""

    stream: str
    epoch: int
    start: str
    end: str
    epsilon: str
    unit: str
    private: bool
    end_reason: str | None = Field(
        description="why an epoch of this stream ended, if readers may know: complete, or what was lost"
    )


class PrivacyAnswer(Released):
    """What is protected and how strongly, in words and in numbers."""

    epsilon: str
    unit: str = Field(description="event, or user")
    max_events: int | None = Field(description="events of one user that count in an epoch; null for events")
    neighbours: str
    neighbouring: str = Field(description="in words: how two logs differ that the promise is about")
    own_neighbouring: str = Field(
        description="in words: how two logs differ that epsilon, of this stream alone, is about"
    )
    source: str
    source_epsilon: str = Field(description="sum over everything that measures the source")
    max_odds_factor: float | None = Field(description="e^source_epsilon; null beyond e^20")
    promise: str
    protected: list[str]
    not_protected: list[str]
    ledger: list[LedgerRow]


class AlertAnswer(BaseModel):
    """The state of one alert rule, and its last change."""

    rule: str
    phase: Literal["inactive", "pending", "firing"]
    stream: str
    condition: str
    confidence: float
    since: str = Field(description="end of the bin at which the condition began to hold, RFC 3339")
    changed: str = Field(description="end of the bin at which the phase last changed, RFC 3339")
    value: float | None = Field(
        description="estimate at that change, in the condition's own unit: events, events per time (rate), a "
        "value (quantile), a share (cdf, ks); null: no_data"
    )
    stderr: float | None
    unit: str = Field(default="", description="of a rate, as in the condition: /m; empty for others")
    meaning: str = Field(default="", description="what value is of, in words; empty if every event counts")
    private: bool
    labels: dict[str, str]
    summary: str
    key: str = Field(description="idempotency key of that change")


class AlertList(BaseModel):
    """Rules that have changed at least once, by name."""

    alerts: list[AlertAnswer]


class Health(BaseModel):
    """Whether this process is alive, or ready to answer."""

    status: str


class ErrorAnswer(BaseModel):
    """One line: what, where, remedy."""

    error: str
    parameter: str | None = None
    nearest: list[str] | None = Field(default=None, description="the nearest acceptable times")
