"""Sums and means of a stream's amounts over ranges of time, from released values only."""

from __future__ import annotations

from fractions import Fraction

from dphist.laws.law import WeightedNoise
from dphist.product.sums import Mean, mean_of, sum_columns
from dphist.tree.estimate import Estimate
from stream_app.core.answered import QueryError
from stream_app.core.asked_keys import AskedKeys
from stream_app.core.cells import Amounts
from stream_app.core.kinds.tables import Span
from stream_app.core.query import StreamView


def declared_sum(view: StreamView) -> Amounts:
    """Return what the stream adds up. Raises: QueryError if it adds up nothing."""
    amounts = view.declared.amounts
    if amounts is None:
        raise QueryError("this stream has no sum; configure sum, and start another stream", "stream")
    return amounts


def sum_of(view: StreamView, span: Span, key: str | AskedKeys | None = None) -> Estimate:
    """Return the sum of the amounts in a range of visible bins, after each was clamped and rounded.

    Guarantee: unbiased, with the exact law of its error, as for counts.
    Args: key, one, several together, or None for all.
    Raises: QueryError for a stream without a sum, an unknown key, or bins that were never measured.
    """
    amounts, axes = declared_sum(view), view.strategy.kind.axes
    assert axes is not None  # a stream with a sum releases its cells over axes
    place = view.place_of(key)
    asked = ("sum", place)
    if asked not in view.sums:
        view.sums[asked] = sum_columns(axes, amounts.range, place)
    return _in_amounts(view.sums[asked].of_range(view.cells(span)), amounts.unit)


def mean_over(
    view: StreamView, span: Span, key: str | AskedKeys | None = None, confidence: float = 0.95
) -> Mean:
    """Return the mean of the amounts in a range of visible bins. Args, raises: as ``sum_of``."""
    amounts = declared_sum(view)
    found = mean_of(view.cells(span), amounts.range, view.place_of(key), confidence)
    unit = amounts.unit
    value = None if found.value is None else _times(found.value, unit)
    return Mean(value, _times(found.lower, unit), _times(found.upper, unit))


def _in_amounts(units: Estimate, unit: Fraction) -> Estimate:
    """Return an estimate in units as one in amounts."""
    law = WeightedNoise.weighted([(float(unit), 1, units.law)])
    rounding = units.rounding * float(unit)
    return Estimate(_times(float(units.value), unit), law.variance, law, rounding)


def _times(units: float, unit: Fraction) -> float:
    """Return units as an amount: one rounding if the unit is a part of 1, for example 1/100.

    >>> _times(1999, Fraction(1, 100))
    19.99
    """
    return units * unit.numerator / unit.denominator
