"""Bins between two epochs that nobody measured, and the refusal of a range with no measured bin.

An epoch may end before the next one begins: a store was lost, or a total was spent and then raised. The
events in between were never counted. So an answer holds the measured bins of its range, and names the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from stream_app.core.answers.answered import QueryError
from stream_app.core.counting.bins import Binning
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import Span


def gaps_in(span: Span, measured: Iterable[Span]) -> list[Span]:
    """Return the parts of a range that no measured range covers, in order.

    Args: measured, disjoint ranges in order; they may be empty.

    >>> [tuple(gap) for gap in gaps_in(Span(0, 9), [Span(1, 3), Span(4, 4), Span(5, 8)])]
    [(0, 1), (3, 5), (8, 9)]
    """
    within = (Span(max(one.start, span.start), min(one.stop, span.stop)) for one in measured)
    covered = [one for one in within if one.start < one.stop]
    starts = [span.start, *(one.stop for one in covered)]
    stops = [*(one.start for one in covered), span.stop]
    return [Span(*gap) for gap in zip(starts, stops, strict=True) if gap[0] < gap[1]]


def other_keys_then(binning: Binning, gap: Span, stream: str) -> QueryError:
    """Return the refusal of a range that had another list of keys. Args: stream, which counted that list."""
    edges_us = [binning.start_us(edge) for edge in gap]
    start, end = map(format_instant, edges_us)
    remedy = f"ask for keys that it holds, for a range that reaches beyond them, or for {stream}"
    line = f"another list of keys was counted in the bins from {start} to {end}; {remedy}"
    return QueryError(f"start, end: {line}", "start", edges_us)


def nothing_measured(binning: Binning, gap: Span) -> QueryError:
    """Return the refusal of a range within a gap: one line that names the gap."""
    edges_us = [binning.start_us(edge) for edge in gap]
    start, end = map(format_instant, edges_us)
    line = f"no epoch measured the bins from {start} to {end}; ask for a range that reaches beyond them"
    return QueryError(f"start, end: {line}", "start", edges_us)
