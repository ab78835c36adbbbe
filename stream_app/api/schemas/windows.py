"""The questions and answers about tumbling windows."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from stream_app.api.schemas.questions import BandConfidence, NoQuery, Time
from stream_app.api.schemas.released import Released


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
