"""Limit the work of one question, estimated beforehand in microseconds of one processor.

The estimates are measured orders of magnitude. They only need to tell milliseconds from seconds, and seconds
from minutes. A question below ``QUICK_US`` is answered at once, and every other question in a separate
process (``replies.computed``).
"""

from __future__ import annotations

from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView

MOST_US = 4_000_000
QUICK_US = 2_000  # an answer up to this cost is computed at once, without a turn
LONG_US = float("inf")  # of an answer that is never computed at once
EPOCH_US = 31.25  # one epoch of a stream, in a count or a description
POINT_US = 300  # per point of a series: inverting the law of its error
COLUMN_US = 0.25  # one column of a stream over keys and values, at one time
SLICE_US = 1_000  # fixed cost of a range of time, for any number of columns


def epochs_us(view: StreamView | None) -> float:
    """Return the microseconds to make one number, or one line, for every epoch of a stream."""
    return 0.0 if view is None else EPOCH_US * len(view.epochs)


def slices_us(view: StreamView, slices: int) -> float:
    """Return the microseconds to read all cells over this many ranges of time."""
    axes = view.strategy.kind.axes
    return slices * (SLICE_US + COLUMN_US * (axes.columns if axes else 1))


def check_work(us: float, parameter: str, instead: str) -> None:
    """Refuse a question that would take too long. Raises: QueryError."""
    if us > MOST_US:
        raise QueryError(
            f"{parameter}: this would take about {us / 1e6:.0f} s of work; at most {MOST_US / 1e6:g} s are "
            f"spent on one question, {instead}",
            parameter,
        )
