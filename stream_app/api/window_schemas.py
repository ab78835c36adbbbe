"""Requests and answers about tumbling windows."""

from __future__ import annotations

from pydantic import BaseModel, Field

from stream_app.api.schemas import BandConfidence, NoQuery, Released, Time


class WindowQuery(NoQuery):
    """A complete window by its end, and the requested histogram and quantiles."""

    end: Time = Field(default=None, description="end of a window; default: the last complete window")
    until: Time = Field(
        default=None, description="any instant, instead of end: selects the last window that ended by then"
    )
    key: str | None = Field(default=None, description="one of the keys, if each key has a histogram")
    confidence: BandConfidence = 0.95
    q: tuple[float, ...] = Field(default=(), max_length=100, description="quantiles of the value, if wanted")


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
    consistent: list[int] = Field(description="the nearest whole cumulative counts that never fall; biased")
    quantiles: list[WindowQuantile]
    note: str
