"""The answers about sums and means."""

from __future__ import annotations

from pydantic import BaseModel, Field

from stream_app.api.schemas.counts import SeriesAnswer
from stream_app.api.schemas.released import EstimatedCount, OfPoints, OfRange


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
