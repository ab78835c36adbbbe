"""The part of a chain row that says the running sum of a stream's amounts.

It is computed from the noisy columns that are released with the row, so it costs no privacy. A causal stream
publishes no column's running count, so this is the only place where its sum stands as first published.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from dphist.product.columns import ColumnSum
from dphist.product.design import ProductDesign
from dphist.product.sums import AmountRange, sum_columns
from dphist.units import UNITS_PER_COUNT
from stream_app.core.kinds.errors import RowError
from stream_app.core.kinds.tables import Closed
from stream_app.core.meaning import amounts_in_words
from stream_app.core.strategy import Strategy


def row_columns(strategy: Strategy) -> ColumnSum | None:
    """Return the sum of all amounts as a sum of columns, in units; None for a stream without a sum."""
    amounts, axes = strategy.declared.amounts, strategy.kind.axes
    return None if amounts is None or axes is None else _of_all_keys(axes, amounts.range)


@lru_cache(maxsize=64)
def _of_all_keys(design: ProductDesign, amounts: AmountRange) -> ColumnSum:
    return sum_columns(design, amounts)


def row_sums(strategy: Strategy, closed: Closed, errors: list[RowError]) -> list[dict[str, object]]:
    """Return, for each closed bin, its running sum since the start of the epoch, with its error.

    Guarantee: post-processing of the released columns.
    Args: strategy, of a stream with a sum; errors, variance and half width in units, one per bin.
    """
    amounts, columns = strategy.declared.amounts, row_columns(strategy)
    assert amounts is not None
    assert columns is not None
    assert closed.columns is not None
    units = np.rint(closed.columns @ columns.weights) / UNITS_PER_COUNT
    said = {"field": amounts.field, "counted": amounts_in_words(strategy.declared)}
    return [
        said | _with_error(value, variance, half_width, amounts.unit)
        for value, (variance, half_width) in zip(units.tolist(), errors, strict=True)
    ]


def _with_error(units: float, variance: float, half_width: float, unit: Fraction) -> dict[str, object]:
    """Return a sum and its error, both in units, as amounts."""
    ends = interval(units, variance, half_width)
    return {
        "estimate": _times(units, unit),
        "variance": variance * float(unit) ** 2,
        "interval": [_times(end, unit) for end in ends],
    }


def interval(value: float, variance: float, half_width: float) -> list[float]:
    """Return both ends; without noise they are the value, if it is whole: ``half_width`` is then rounding."""
    known = variance == 0.0 and value.is_integer() and half_width < 0.5
    return [value, value] if known else [value - half_width, value + half_width]


def _times(units: float, unit: Fraction) -> float:
    return units * unit.numerator / unit.denominator
