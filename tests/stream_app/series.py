"""Splits a series into its points, for tests that compare each point."""

from __future__ import annotations

from dphist.tree.estimate import Estimate
from stream_app.core.answers.answered import SeriesPoints


def estimates(series: SeriesPoints) -> list[Estimate]:
    """Return each point of a series as an estimate."""
    laws = [series.laws.law(row) for row in range(len(series.spans))]
    columns = zip(series.values.tolist(), laws, series.roundings.tolist(), strict=True)
    return [Estimate(value, law.variance, law, rounding) for value, law, rounding in columns]
