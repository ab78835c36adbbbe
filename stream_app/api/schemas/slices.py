"""Questions and answers by slices of time, by keys, and at another epsilon; and about windows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from stream_app.api.schemas.answers import AboutKeys, EstimatedCount, PartlyMeasured, Released, SummedField
from stream_app.api.schemas.questions import (
    MAX_WHOLE,
    BandConfidence,
    CalendarQuery,
    Confidence,
    NoQuery,
    Time,
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


class WindowQuery(NoQuery):
    """A complete window by its end, and the requested histogram and quantiles."""

    end: Time = Field(default=None, description="end of a window; default: the last complete window")
    until: Time = Field(
        default=None, description="any instant, instead of end: selects the last window that ended by then"
    )
    key: str | None = Field(default=None, description="one of the keys, if each key has a histogram")
    confidence: BandConfidence = 0.95
    q: tuple[float, ...] = Field(default=(), max_length=100, description="quantiles of the value, if wanted")


class WindowsAnswer(BaseModel):
    """How a stream's tumbling windows are released."""

    mechanism: str
    options: dict[str, Any] = Field(description="options of the mechanism; all others have their defaults")
    bins: int = Field(description="bins in a window")
    epsilon: str = Field(description="epsilon of each histogram, for one event added or removed")
    histograms: int = Field(description="histograms in a window: one, or one for each key")
    keys: int | None = Field(description="how many keys have a histogram each; null: one for all keys")
    first_keys: list[str] = Field(
        description="the first of them; /keys/list has all. None for a key of boards"
    )
    value_field: str | None = Field(
        description="field whose values a histogram counts; null: a histogram over keys"
    )
    buckets: int


class WindowQuantile(BaseModel):
    """A quantile of a window's value."""

    q: float
    value: float | None = Field(description="within its likeliest bucket; null where no event is seen")
    interval: tuple[float, float] | None = Field(
        description="edges of buckets, from the band; null where the error depends on the data"
    )


class WindowAnswer(Released):
    """The histogram of one window, released once."""

    key: str | None
    start: str
    end: str
    mechanism: str
    epsilon: str
    confidence: float
    earlier: str | None = Field(description="end of the window before; null for the first")
    later: str | None = Field(description="end of the next complete window; null for the last")
    windows: int = Field(description="complete windows so far")
    sorted: bool = Field(description="true: counts in rising order, without their keys")
    low: float | None = Field(description="start of the first bucket of the value; null for other counts")
    upto: list[float] | None = Field(description="end of each bucket of the value; null for other counts")
    keys: list[str] | None = Field(description="key of each count, if the counts are of keys")
    count: list[float]
    stderr: list[float] | None = Field(description="null where the error depends on the data")
    count_lower: list[float] | None = Field(description="a band around all counts at once")
    count_upper: list[float] | None
    cumulative: list[float]
    lower: list[float] | None = Field(description="a band around all cumulative counts at once")
    upper: list[float] | None
    consistent: list[int] = Field(
        description="the nearest whole cumulative counts that never fall and lie in the band; biased"
    )
    quantiles: list[WindowQuantile]
    note: str
