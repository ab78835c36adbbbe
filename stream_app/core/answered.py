"""The types of a view's answers: rows that it lacks, points of a series, the refusal of a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dphist.arrays import FloatArray
from dphist.laws.law import LawTable
from dphist.tree.estimate import Estimate
from stream_app.core.kinds.tables import Span


class Missing(NamedTuple):
    """Visible rows of a table that a view lacks, starting at row ``first``."""

    epoch: int
    table: str
    first: int
    rows: int


class QueryError(ValueError):
    """A question that cannot be answered: one line with what, where and the remedy.

    Args: the parameter at fault, and valid times near it in microseconds.
    """

    def __init__(self, line: str, parameter: str, nearest_us: Sequence[int] = ()) -> None:
        super().__init__(line)
        self.parameter = parameter
        self.nearest_us = tuple(nearest_us)


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """Points of a series: each point's range and value, and the law and rounding of its error.

    ``available`` is the number of points asked for. Some are left out: by downsampling, which keeps the
    lowest and the highest point of every stretch, or because they touch bins never measured (``unmeasured``).
    """

    spans: Sequence[Span]
    values: FloatArray
    laws: LawTable
    roundings: FloatArray
    available: int
    unmeasured: int

    @property
    def estimates(self) -> list[Estimate]:
        """Return each point as an estimate; slower than using the columns."""
        laws = [self.laws.law(row) for row in range(len(self.spans))]
        columns = zip(self.values.tolist(), laws, self.roundings.tolist(), strict=True)
        return [Estimate(value, law.variance, law, rounding) for value, law, rounding in columns]
