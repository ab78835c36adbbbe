"""The answers about a value: its cumulative counts and its quantiles."""

from __future__ import annotations

from pydantic import BaseModel, Field

from stream_app.api.schemas.released import AboutKeys, PartlyMeasured


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
