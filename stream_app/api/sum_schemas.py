"""The answers about sums and means."""

from __future__ import annotations

from pydantic import Field

from stream_app.api.schemas import AboutKeys, SummedField


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
