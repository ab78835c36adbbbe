"""The descriptions of streams: in short, with their trees, axes and epochs; the overview."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from stream_app.api.schemas.answers import (
    EstimatedCount,
    OfGeneration,
    PartlyMeasured,
    Released,
    SummedField,
    absent,
)
from stream_app.api.schemas.questions import MAX_WHOLE, Names, NoQuery
from stream_app.api.schemas.slices import WindowsAnswer

FIRST_KEYS = 10  # in the description of a stream
MOST_LISTED = 1_000  # keys in one part of the list


class EpochCount(EstimatedCount):
    """Users of one epoch, each counted once."""

    counted: str = Field(description="what value and interval are a number of, in words")
    start: str = Field(description="start of the epoch, RFC 3339")
    end: str = Field(description="end of its last released bin, RFC 3339")


class StreamSummary(Released, OfGeneration, PartlyMeasured):
    """The short description of a stream."""

    title: str = Field(description="what pages show as the stream's name")
    display_timezone: str = Field(description="time zone in which pages show instants by default")
    source: str = Field(
        description="group, topic or spool; of a file its name without directories, or 'the log' if "
        "the stream has a title"
    )
    epsilon: str = Field(description="exact decimal or fraction")
    delta: str | None = Field(default=None, description="beside epsilon; null: a pure promise")
    bin: str = Field(description="length of a bin, in words")
    bin_seconds: float | None = Field(description="length of a bin; null for calendar days")
    timezone: str | None = Field(
        description="time zone whose calendar days the bins are; null: bins of equal length"
    )
    start: str = Field(description="start of the first bin, RFC 3339")
    kept_from: str | None = Field(
        default=None,
        exclude_if=absent,
        description="equal to start, if retention removed earlier bins: no count holds their events",
    )
    running: EstimatedCount | None = Field(
        description="events since start; null before the first release, and for a key of boards"
    )
    counted: str = Field(description="what running is a number of, in words: events")
    retired: str | None = Field(
        default=None, exclude_if=absent, description="of a retired stream: when it was, RFC 3339"
    )
    imported: str | None = Field(
        default=None,
        exclude_if=absent,
        description="of a stream whose history came from another store: when it did, RFC 3339",
    )
    this_epoch: EpochCount | None = Field(
        default=None,
        description="users first seen in the last epoch with a release; null: the stream counts no users, or "
        "has released nothing, or the reader has a key of boards",
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
    values: int = Field(description="how many are listed; /keys/list has them")


class KeyListQuery(NoQuery):
    """A part of the list of keys, or names to look up in it."""

    contains: str = Field(default="", max_length=256, description="a part of the name, in any case")
    field: str | None = Field(
        default=None, description="one of several key fields: list its values instead of keys"
    )
    key: Names = Field(
        default=[],
        description="a key, or a pattern over several fields; may be repeated. The answer then says which of "
        "these names the stream has. Not beside the other parameters",
    )
    after: int = Field(default=0, ge=0, le=MAX_WHOLE, description="next of the part before this one")
    limit: int = Field(default=100, ge=1, le=MOST_LISTED, description="at most so many names")


class KeyListAnswer(BaseModel):
    """A part of a stream's public list of keys: from the configuration, or found with noise."""

    stream: str
    field: str | None = Field(description="whose values these are; null: they are keys")
    found: list[str | None] | None = Field(
        None,
        description="for each of keys, the end of the bin that first showed it; null: listed, or a pattern",
        exclude_if=lambda found: found is None,
    )
    listed: int = Field(description="how many the whole list has")
    keys: list[str] = Field(description="in the order of the list, which is also that of columns in /nodes")
    next: int | None = Field(description="for the next part, as after; null: this is the last one")
    unknown: list[str] = Field(description="names that were looked up and that the stream does not have")


class AxesAnswer(BaseModel):
    """The axes besides time: keys and values."""

    keys: int | None = Field(description="how many are listed; null: the stream has no keys")
    first_keys: list[str] = Field(
        description=f"the first {FIRST_KEYS} of the list; /keys/list has all. None for a key of boards"
    )
    key_field: str | None = Field(default=None, description="the field of the keys; null if several make one")
    key_fields: list[KeyFieldAnswer] | None = Field(
        default=None, description="fields whose values make a key, in the order of its parts; null: one field"
    )
    edges: list[float] | None = Field(description="edges of the buckets of the value; one more than buckets")
    value_field: str | None = Field(description="name of the value's field; null without a value")
    value_branching: list[int]
    value_shares: list[str]
    total_share: str = Field(description="share of epsilon of the total over keys; the keys have the rest")
    columns: list[ColumnsAnswer]


class AnnotationAnswer(BaseModel):
    """A text beside a time of a chart."""

    start: str = Field(description="RFC 3339")
    end: str | None = Field(description="RFC 3339; null: an instant")
    text: str
    link: str = Field(description="a page about it; may be empty")


class HistoryPart(BaseModel):
    """A stream before this one whose counts are a part of answers about this one."""

    stream: str
    start: str = Field(description="start of its first bin, RFC 3339")
    end: str = Field(description="end of its last bin, RFC 3339")
    bin: str = Field(description="its bins, in words; steps over them must fit them")
    bin_seconds: float | None = Field(description="the length of its bins; null: calendar days of timezone")
    timezone: str | None = Field(description="time zone of its calendar days; null: bins of fixed length")
    bins_released: int
    epochs_released: int = Field(description="epochs with released bins")
    in_total: bool = Field(
        description="whether answers about all keys include it; false: its list of keys differs, so only "
        "answers about keys that both lists hold include it"
    )


class CapAnswer(BaseModel):
    """What one cap on a user's events would cost."""

    max_events: int
    least: float = Field(
        description="events that it leaves out at least, of users that noise alone does not explain"
    )
    most: float | None = Field(
        description="at most, null if unknown; both hold for all caps at once with 95 % confidence"
    )
    error: float = Field(description="95 % error of the count of the window, in events")


class CapsAnswer(BaseModel):
    """Caps proposed from users by their numbers of events, counted or not, in the last cap window."""

    start: str
    end: str
    users: list[int] = Field(description="noisy: bucket b has users with 2^b to 2^(b+1)-1 events")
    reach: float = Field(description="how far all of these numbers together are from the truth at most, 95 %")
    now: int = Field(description="max_events of the stream")
    caps: list[CapAnswer]
    proposed: int = Field(description="the cap with the least of both errors together")
    sentence: str


class StreamDetail(StreamSummary):
    """A stream with its tree and epochs; with /nodes, this suffices to compute every answer."""

    counts: Literal["events", "users"] = Field(description="what is counted: each event, or each user once")
    noun: str = Field(description="what a chart's points are numbers of: events, users first seen")
    next_release: str | None = Field(
        description="when the next bin becomes visible if no worker is late, RFC 3339; null for replays, "
        "whose clock is not ours"
    )
    ends: str | None = Field(description="where the stream ends, RFC 3339; null: it has no end")
    successor_of: str | None = Field(
        default=None,
        exclude_if=absent,
        description="the stream that ends where this one begins, if you may read it",
    )
    successor: str | None = Field(
        default=None, exclude_if=absent, description="the stream that begins where this one ends, likewise"
    )
    halted: bool | None = Field(
        default=None,
        exclude_if=absent,
        description="true while a fault, which the operator must correct, keeps it from being counted; it is "
        "shown from the next whole minute on",
    )
    successor_changes: str | None = Field(
        default=None,
        exclude_if=absent,
        description="what differs there, in a sentence, if it is the next generation",
    )
    epsilon_so_far: str | None = Field(
        default=None,
        exclude_if=absent,
        description="epsilon of all epochs over the source so far, where epochs add up for a user, if it is "
        "not epsilon",
    )
    delta_so_far: str | None = Field(
        default=None, exclude_if=absent, description="beside epsilon_so_far, of an approximate promise"
    )
    where: str | None = Field(
        default=None, description="which events count, in words; null: every event of the log"
    )
    left_out: str = Field(default="", description="which events no count holds, in words; empty: none")
    warning: str = Field(description="words to show with the charts; empty if every event counts")
    shape: str = Field(
        default="", description="what the shape of a chart hides, in words; a part of warning; empty: nothing"
    )
    strategy_hash: str
    branching: list[int] = Field(description="children per node, root to leaf; empty: no tree")
    level_epsilons: list[str] = Field(description="exact, levels 1 to height")
    level_stderrs: list[float] = Field(description="standard deviation of one node's noise, per level")
    release: str
    never_revised: bool = Field(description="whether later releases never change an earlier answer")
    caps: CapsAnswer | None = Field(
        default=None, exclude_if=absent, description="of a stream with privacy.propose_caps, after an epoch"
    )
    axes: AxesAnswer | None = Field(default=None, description="null: a node is one number")
    windows: WindowsAnswer | None = Field(
        default=None, description="null: no tumbling windows beside the tree"
    )
    sum: SummedField | None = Field(default=None, description="null: the stream adds up no field")
    annotations: list[AnnotationAnswer] = Field(
        default=[], description="texts beside times, for charts; the operator has written them"
    )
    history: list[HistoryPart] | None = Field(
        default=None,
        exclude_if=absent,
        description="streams before this one whose counts are a part of answers, oldest first",
    )
    epochs: list[EpochAnswer]


class Sparkline(BaseModel):
    """The last counts of a stream, or its last sums if it adds up an amount, oldest first."""

    bins: int = Field(description="bins in each count")
    end: list[float] = Field(description="seconds since 1970")
    value: list[float]
    lower: list[float]
    upper: list[float]


class OverviewSum(EstimatedCount):
    """The sum of the amounts of all events so far."""

    counted: str = Field(description="what the sum is of, in words")
    amounts: SummedField


class OverviewStream(StreamSummary):
    """A stream on the overview."""

    kept_from: str | None = Field(default=None, exclude=True)  # only in the stream's own description
    epsilon_so_far: str | None = Field(
        description="epsilon of all epochs over the source so far, where epochs add up for a user; "
        "null where they do not, or if it equals epsilon"
    )
    delta_so_far: str | None = Field(
        default=None, description="beside epsilon_so_far; null: a pure promise, or epochs do not add up"
    )
    sum: OverviewSum | None = Field(description="null: the stream adds up no amount, or has released nothing")
    sparkline: Sparkline | None
    next_release: str | None = Field(
        description="when the next bin becomes visible if no worker is late, RFC 3339; null for replays, "
        "whose clock is not ours"
    )
    ends: str | None = Field(description="where the stream ends, RFC 3339; null: it has no end")
    firing: list[str] = Field(description="alert rules that fire")
    pending: list[str]


class PreparingStream(BaseModel):
    """A configured stream that no worker has opened yet."""

    stream: str
    title: str = Field(description="what pages show as the stream's name")


class Overview(BaseModel):
    """All streams, by name, and the time of this process's clock."""

    now: str
    streams: list[OverviewStream]
    preparing: list[PreparingStream] = Field(
        description="configured streams that no worker has opened yet: it prepares them or is down"
    )
