"""Which asked times are edges of visible bins, and which bins between them nobody measured.

An epoch may end before the next one begins: a store was lost, or a total was spent and then raised. The
events in between were never counted. So an answer holds the measured bins of its range, and names the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stream_app.core.answers.answered import QueryError
from stream_app.core.counting.bins import Binning
from stream_app.core.instants import format_instant
from stream_app.core.kinds.tables import Span
from stream_app.core.records import Trimmed


def bin_at_edge(
    binning: Binning, released_us: tuple[int, int], time_us: int, parameter: str, trimmed: Trimmed
) -> int:
    """Return the bin that starts at a time.

    Args: released_us, the first and the last edge of the visible bins; parameter, to name in a refusal;
        trimmed, the bins that retention removed.
    Raises: QueryError, naming the nearest edges, for a time that is not the edge of a visible bin.
    """
    first, last = released_us
    if trimmed and time_us < first:
        raise QueryError(
            f"{parameter}: {format_instant(time_us)} is before {format_instant(first)}, since when releases "
            "are kept; older ones were removed",
            parameter,
            [first],
        )
    if not first <= time_us <= last:
        raise QueryError(
            f"{parameter}: {format_instant(time_us)} is outside what is released, "
            f"{format_instant(first)} to {format_instant(last)}",
            parameter,
            [first if time_us < first else last],
        )
    bin = int(binning.bin_of(np.array([time_us], dtype=np.int64))[0])
    before, after = binning.start_us(bin), binning.end_us(bin)
    if time_us != before:
        raise QueryError(
            f"{parameter}: {format_instant(time_us)} is inside a bin; the nearest edges are "
            f"{format_instant(before)} and {format_instant(after)}",
            parameter,
            [before, after],
        )
    return bin


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
