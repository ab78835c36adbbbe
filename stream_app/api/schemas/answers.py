"""Answers about counts, sums and values, the fields that all answers share, and refusals."""

from __future__ import annotations

from pydantic import BaseModel, Field

from stream_app.api.schemas.questions import View
from stream_app.core.kinds.tables import SeriesKind


def absent(value: object) -> bool:
    """Return whether an answer leaves a field out."""
    return value is None


class Released(BaseModel):
    """The fields of every answer about a stream."""

    stream: str
    generation: int | None = Field(
        default=None,
        exclude_if=absent,
        description="which generation of the stream answers: its settings have changed so often, less one. "
        "Absent: the first one",
    )
    private: bool = Field(
        description="false if this stream, another one over its source, or all together protect nobody"
    )
    released_until: str | None = Field(description="end of the last released bin, RFC 3339")
    seq: int = Field(
        description="released bins of this generation so far; all of the answer but private is a pure "
        "function of it"
    )
    meaning: str = Field(description="what the stream counts, in words; a cap per user leaves events out")
    intervals: str = Field(description="what the stream's intervals are for, in words")


class OfGeneration(BaseModel):
    """Where a stream's generation began; absent for the first one."""

    generation_start: str | None = Field(
        default=None,
        exclude_if=absent,
        description="start of its first bin, RFC 3339, if it is not the first",
    )
    changes: str | None = Field(
        default=None,
        exclude_if=absent,
        description="what differs from the generation before, in a sentence",
    )


class AboutKeys(Released):
    """The fields of an answer about a group of keys; other answers leave them out."""

    keys: list[str] | None = Field(
        default=None, exclude_if=absent, description="of a group: the names as asked; key then joins them"
    )
    not_keys: list[str] | None = Field(
        default=None, exclude_if=absent, description="of a group: the names that are left out of all keys"
    )


class EstimatedCount(BaseModel):
    """A count with its error."""

    value: float = Field(description="unbiased estimate; may be negative or fractional")
    stderr: float
    interval: tuple[float, float] = Field(description="holds the true number with at least this confidence")
    confidence: float


class Gap(BaseModel):
    """A time between two epochs, RFC 3339: its events are in no count."""

    start: str
    end: str


class PartlyMeasured(BaseModel):
    """What an answer about a range does not hold."""

    unmeasured: list[Gap] = Field(
        default=[],
        description="parts of the range that no epoch measured, or that had another list of keys; the answer "
        "holds the other bins",
    )


class OfRange(AboutKeys, PartlyMeasured):
    """One number of the bins from start to end."""

    counted: str = Field(description="what value and interval are of, in words: events")
    key: str | None = Field(default=None, description="key that the number is of; null: all keys")
    start: str
    end: str


class OfPoints(AboutKeys):
    """Columns of equal length, an entry for each point. Instants are seconds since 1970."""

    key: str | None = None
    kind: SeriesKind
    step: int
    window: int | None
    confidence: float
    start: list[float] = Field(description="start of the range that each point is of")
    end: list[float] = Field(description="end of the range that each point is of")
    lower: list[float]
    upper: list[float]
    days: int | None = Field(default=None, description="calendar days of each point; null: step bins each")
    months: int | None = Field(default=None, exclude_if=absent, description="calendar months of each point")
    timezone: str | None = Field(default=None, description="time zone of these days or months")
    inner: list[list[float]] | None = Field(
        default=None, exclude_if=absent, description="half widths of the 80 and of the 50 % intervals"
    )
    points_available: int
    downsampled: bool
    note: str = Field(description="what was omitted, if anything, and what the intervals do not promise")


class Health(BaseModel):
    """Whether this process is alive, or ready to answer."""

    status: str


class ErrorAnswer(BaseModel):
    """One line: what, where, remedy."""

    error: str
    parameter: str | None = None
    nearest: list[str] | None = Field(default=None, description="the nearest acceptable times")


class CountAnswer(OfRange, EstimatedCount):
    """Number of events, or users, from start to end: the best linear unbiased estimate from all nodes."""


class SeriesAnswer(OfPoints):
    """Running counts, counts per bin or over sliding windows, each point with its error.

    As JSON, CSV or an Arrow stream: by the parameter format, or else by the header Accept.
    """

    view: View
    value: list[float]
    stderr: list[float]
    nodes: list[int] = Field(
        description="number of noisy counts that each point is computed from; 0: all so far"
    )


class NodesAnswer(Released):
    """Released noisy values of consecutive nodes: anyone can recompute every answer from them."""

    epoch: int
    level: int
    first: int
    node_bins: int = Field(description="bins under one node")
    scale: float | None = Field(
        description="scale of the discrete Laplace noise of each value; null where it differs: see axes"
    )
    values: list[list[int]] = Field(description="one list of cells per node")
    nodes_released: int


class SummedField(BaseModel):
    """What a stream adds up: a field's number, moved into a range and rounded to units."""

    field: str
    min: float = Field(description="smaller amounts count as this one")
    max: float = Field(description="larger amounts count as this one")
    unit: float = Field(description="amounts are rounded to the nearest multiple")


class Amounts(BaseModel):
    """The field of every answer about a sum or a mean: what was added up."""

    amounts: SummedField


class SumAnswer(OfRange, EstimatedCount, Amounts):
    """Sum of the clamped and rounded amounts in the bins from start to end."""


class MeanAnswer(OfRange, Amounts):
    """Mean of the clamped and rounded amounts in the bins from start to end."""

    value: float | None = Field(
        description="quotient of the estimated sum and count, moved into min to max; null if the estimated "
        "count is not above 0"
    )
    interval: tuple[float, float] = Field(
        description="holds the true mean with at least this confidence; from min to max if the noise hides it"
    )
    confidence: float


class SumSeriesAnswer(SeriesAnswer, Amounts):
    """Running sums, sums per bin or over sliding windows, in the form of /series."""

    counted: str = Field(description="what the values are of, in words: sum of amount, clamped")


class MeanSeriesAnswer(OfPoints, Amounts):
    """Running means, means per bin or over sliding windows, each point with its interval."""

    counted: str = Field(description="what the values are of, in words: mean of amount, clamped")
    value: list[float | None] = Field(description="null where the estimated count is not above 0")


class CdfAnswer(AboutKeys, PartlyMeasured):
    """Cumulative counts of a value, with a simultaneous band around them."""

    key: str | None
    start: str
    end: str
    confidence: float
    upto: list[float] = Field(description="upper edge of each bucket; larger values count in the last bucket")
    value: list[float] = Field(
        description="number of events below each edge, unbiased: may lie outside the band; the last is all"
    )
    stderr: list[float]
    lower: list[float] = Field(description="lower edge of the band; never falls, as the true curve")
    upper: list[float]
    consistent: list[int] = Field(
        description="the nearest whole counts that never fall and lie in the band; biased; pages draw them"
    )


class EstimatedQuantile(BaseModel):
    """A quantile as a range of the value."""

    q: float
    value: float | None = Field(description="within its likeliest bucket; null where no event is seen")
    interval: tuple[float, float] = Field(
        description="edges of buckets; the first and the last bucket also hold what is outside the range"
    )


class QuantilesAnswer(AboutKeys, PartlyMeasured):
    """Quantiles of a value; whenever the band of /cdf holds, all intervals hold."""

    key: str | None
    start: str
    end: str
    confidence: float
    quantiles: list[EstimatedQuantile]
