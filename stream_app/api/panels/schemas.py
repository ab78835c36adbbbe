"""The pages' own requests and answers: the numbers of one chart, each with its error."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from stream_app.api.schemas import (
    MAX_WHOLE,
    AboutKeys,
    AlertNow,
    AlertReading,
    BandConfidence,
    CalendarQuery,
    Confidence,
    EstimatedCount,
    PartlyMeasured,
    Released,
    StreamSummary,
    SummedField,
)

MOST_SLICES = 120
MOST_KEYS = 20_000
MOST_OF_KEYS = 100_000  # counts of keys in slices, in one answer
LEAST_PREVIEW_EPSILON = 0.01  # as the slider of the page


class SlicesQuery(CalendarQuery):
    """A range of time in slices of ``step`` bins, which cover it; the last one may be shorter."""

    step: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WHOLE,
        description=f"bins in a slice; if left out, as few as make at most {MOST_SLICES} slices",
    )
    aligned: bool = Field(
        default=False,
        description="true: slices begin at whole multiples of step since 1970 (weeks: on Mondays; "
        "calendar days: at the start of the range), so the first may be shorter, too",
    )


class KeysQuery(SlicesQuery):
    """The keys with the largest estimates, of those that are named or of all, in slices of a range."""

    limit: int = Field(default=12, ge=1, le=MOST_KEYS, description="at most so many keys")
    by: str | None = Field(
        default=None,
        description="one of several key fields: a row for each of its values, all other fields"
        " together; not beside key",
    )
    confidence: Confidence = 0.95


class HeatQuery(SlicesQuery):
    """A value over time."""

    rows: int = Field(default=32, ge=2, le=256, description="the largest number of ranges of the value")


class QuantileSlicesQuery(SlicesQuery):
    """Quantiles over time; all intervals of one slice hold at once."""

    q: list[float] = Field(min_length=1, max_length=9, description="above 0 and below 1; may be repeated")
    confidence: BandConfidence = 0.95


class PreviewQuery(SlicesQuery):
    """The same questions at another epsilon."""

    epsilon: float = Field(
        ge=LEAST_PREVIEW_EPSILON,
        le=20.0,
        allow_inf_nan=False,
        description="of an epoch, as in the configuration; from 0.01 to 20",
    )
    of: Literal["count", "sum"] = Field(
        default="count", description="count, or the sum of the amounts of a stream with a sum"
    )
    confidence: Confidence = 0.95


class Sliced(BaseModel):
    """The slices of an answer."""

    start: list[float] = Field(description="of each slice, seconds since 1970")
    end: list[float]
    partial: list[bool] = Field(
        description="whether each slice is shorter than a step: the range cuts it off, or the month goes on"
    )


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


class Over(PartlyMeasured):
    """The range of time of a number, RFC 3339."""

    start: str
    end: str


class KeyCounts(EstimatedCount):
    """One key over the whole range and in each slice."""

    key: str
    found: str | None = Field(
        None,
        description="the end of the bin that first showed a key that no list names; left out for listed keys",
        exclude_if=lambda found: found is None,
    )
    counts: list[float]
    lower: list[float]
    upper: list[float]


class KeysAnswer(Released, Sliced):
    """The keys with the largest estimates, over the range and in slices of it."""

    over: Over = Field(description="what value and interval of each key are of, whatever the slices")
    keys: list[KeyCounts] = Field(description="largest estimate first")
    keys_available: int = Field(description="all of the list, or those that the question names")
    note: str = Field(description="totals are over the whole range, whatever the slices")


class SumKeysAnswer(KeysAnswer):
    """The keys with the largest sums, over the range and in slices of it."""

    amounts: SummedField


class KeyMean(BaseModel):
    """The mean of one key's amounts over the whole range."""

    key: str
    value: float | None = Field(description="null if the estimated count is not above 0")
    interval: tuple[float, float]


class MeanKeysAnswer(Released, PartlyMeasured):
    """The means of the keys with the most events in the range."""

    start: str
    end: str
    confidence: float
    amounts: SummedField
    keys: list[KeyMean] = Field(description="largest estimated count first")
    keys_available: int
    note: str


class HeatAnswer(AboutKeys, Sliced):
    """Events by value and time: ``counts[slice][range of the value]``."""

    key: str | None
    edges: list[float] = Field(description="edges of the ranges of the value; one more than ranges")
    counts: list[list[float]]
    stderr: list[list[float]]
    note: str


class CdfsAnswer(AboutKeys):
    """Cumulative counts of a value from one start to each end: ``counts[end][bucket]``."""

    key: str | None
    start: str
    end: list[float] = Field(description="seconds since 1970")
    upto: list[float] = Field(description="end of each bucket; what is beyond the range counts in the last")
    counts: list[list[int]] = Field(description="the nearest whole ones, made to rise over time too; biased")
    stderr: list[list[float]] = Field(description="of the unbiased counts")
    note: str


class QuantileOverTime(BaseModel):
    """One quantile in each slice, as a range of the value."""

    q: float
    value: list[float | None]
    lower: list[float]
    upper: list[float]


class QuantileSlicesAnswer(AboutKeys, Sliced):
    """Quantiles over time. All intervals of one slice hold at once, but not those of all slices."""

    key: str | None
    confidence: float
    low: float = Field(description="least edge of the value; less is counted in the first bucket")
    high: float
    quantiles: list[QuantileOverTime]
    note: str


class PreviewQuestion(BaseModel):
    """A question, and half the width of its answer's interval."""

    question: str
    half_width: float = Field(description="of the interval at the stream's own epsilon")
    preview_half_width: float = Field(description="at the other one")


class PreviewAnswer(AboutKeys, Sliced):
    """The same intervals' widths at this epsilon, from a new plan; nothing is measured."""

    epsilon: str
    preview_epsilon: str
    confidence: float
    value: list[float] = Field(description="the counts, or sums, as they are released now")
    half_width: list[float]
    preview_half_width: list[float]
    questions: list[PreviewQuestion]
    note: str = ""


class AlertMark(AlertNow):
    """A rule over a stream: its threshold and the last change of its state."""

    measure: str
    window_bins: int | None = Field(description="bins of the window; null for the running count")
    comparison: str | None
    threshold: float | None = Field(description="as it is written")
    threshold_events: float | None = Field(description="of counts and rates, as events in the window")
    keys: list[str] = Field(description="what is counted together; none for all, or all but not_keys")
    not_keys: list[str] = Field(default=[], description="keys that are left out; none: see keys")
    level: float | None = Field(description="of a quantile, which one; of a CDF, the point")
    since: float = Field(description="when the condition began to hold, seconds since 1970")
    changed: float | None = Field(description="when the phase last changed, seconds since 1970; null: never")
    fires: float | None = Field(
        default=None, description="when a pending rule fires if its condition holds until then; else null"
    )
    watched: float | None = Field(
        default=None, description="since when the rule is watched, seconds since 1970; null: not known"
    )
    kind: str = Field(description="that change: pending, firing, resolved or inactive")


class AlertTransition(AlertReading):
    """One change of a rule's phase, and the release that led to it."""

    kind: Literal["pending", "firing", "resolved", "inactive"] = Field(
        description="what it became; inactive: pending that lapsed"
    )
    at: float = Field(description="end of the bin whose release it follows from, seconds since 1970")
    seq: int = Field(description="of that release")


class AlertTransitions(Released):
    """The last changes of the rules over a stream, oldest first."""

    transitions: list[AlertTransition]
    kept: int = Field(description="the largest number that is kept; older ones are deleted")


class AlertMarks(Released):
    """The rules over a stream that are watched, and removed ones that changed at least once."""

    alerts: list[AlertMark]
