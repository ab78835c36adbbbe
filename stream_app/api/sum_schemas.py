"""The questions and answers about sums and means."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stream_app.api.schemas import MAX_WHOLE, AboutKeys, CountQuery, Kind, SeriesAnswer, SummedField

MOST_MEANS = 400  # points of one answer; each takes 2 to 10 ms


class MeanSeriesQuery(CountQuery):
    """Means over a range; ``step`` and ``window`` are numbers of bins."""

    kind: Kind = Field(
        default="running",
        description="running mean, means of step bins each, or of sliding windows of bins",
    )
    step: int = Field(default=1, ge=1, le=MAX_WHOLE, description="bins from one point to the next")
    window: int | None = Field(
        default=None, ge=1, le=MAX_WHOLE, description="bins in a window; for kind=window only"
    )
    points: int = Field(
        default=120, ge=2, le=MOST_MEANS, description="largest number of points; fewer are evenly spaced"
    )
    format: Literal["json", "csv", "arrow"] | None = Field(
        default=None, description="format of the answer; overrides the header Accept"
    )


class SumAnswer(AboutKeys):
    """Sum of the clamped and rounded amounts in the bins from start to end."""

    value: float = Field(description="unbiased estimate; may be outside what the amounts allow")
    stderr: float
    interval: tuple[float, float] = Field(description="holds the true sum with at least this confidence")
    confidence: float
    amounts: SummedField
    counted: str = Field(description="what value and interval are of, in words: sum of amount, clamped")
    key: str | None = Field(default=None, description="key whose amounts are added; null: all keys")
    start: str
    end: str


class MeanAnswer(AboutKeys):
    """Mean of the clamped and rounded amounts in the bins from start to end."""

    value: float | None = Field(
        description="quotient of the estimated sum and count, moved into min to max; null if the estimated "
        "count is not above 0"
    )
    interval: tuple[float, float] = Field(
        description="holds the true mean with at least this confidence; from min to max if the noise hides it"
    )
    confidence: float
    amounts: SummedField
    counted: str = Field(description="what value and interval are of, in words: mean of amount, clamped")
    key: str | None = Field(default=None, description="key whose amounts are averaged; null: all keys")
    start: str
    end: str


class SumSeriesAnswer(SeriesAnswer):
    """Sums of amounts, in the columns of /series."""

    amounts: SummedField
    counted: str = Field(description="what the values are of, in words: sum of amount, clamped")


class MeanSeriesAnswer(AboutKeys):
    """Means of amounts: columns of equal length. Instants are seconds since 1970."""

    amounts: SummedField
    counted: str = Field(description="what the values are of, in words: mean of amount, clamped")
    key: str | None = None
    kind: Kind
    step: int
    window: int | None
    confidence: float
    start: list[float] = Field(description="start of the range that each mean is of")
    end: list[float] = Field(description="end of the range that each mean is of")
    value: list[float | None] = Field(description="null where the estimated count is not above 0")
    lower: list[float]
    upper: list[float]
    points_available: int
    downsampled: bool
    note: str = Field(description="what was omitted, if anything, and what the intervals do not promise")
