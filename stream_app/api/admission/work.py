"""What one question may cost: estimated before the work, in microseconds of one processor, and refused above.

The estimates are measured orders of magnitude. They need not be exact: they tell milliseconds from seconds
and seconds from minutes.
"""

from __future__ import annotations

from stream_app.core.answered import QueryError
from stream_app.core.query import StreamView

MOST_US = 4_000_000
QUICK_US = 2_000  # an answer that costs no more is made at once, beside all others
POINT_US = 300  # a point of a series: the law of its error, inverted
COLUMN_US = 0.25  # one column of a stream over keys and values, at one time
SLICE_US = 1_000  # what a range of time costs whatever its columns are


def columns_of(view: StreamView) -> int:
    """Return how many columns an answer over a range of time goes through."""
    product = view.strategy.kind.axes
    return 1 if product is None else sum(group.width for group in product.groups)


def slices_us(view: StreamView, slices: int) -> float:
    """Return what it costs to read all cells over so many ranges of time."""
    return slices * (SLICE_US + COLUMN_US * columns_of(view))


def check_work(us: float, parameter: str, what: str, instead: str) -> None:
    """Refuse a question that would take too long. Raises: QueryError."""
    if us > MOST_US:
        raise QueryError(
            f"{parameter}: {what} would take about {us / 1e6:.0f} s of work; at most {MOST_US / 1e6:g} s are "
            f"spent on one question, {instead}",
            parameter,
        )
