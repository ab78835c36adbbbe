"""Which bin an asked time is the start of; a time that is no edge of a visible bin is refused."""

from __future__ import annotations

import numpy as np

from stream_app.core.answers.answered import QueryError
from stream_app.core.counting.bins import Binning
from stream_app.core.instants import format_instant


def bin_at_edge(
    binning: Binning, released_us: tuple[int, int], time_us: int, parameter: str, trimmed: bool = False
) -> int:
    """Return the bin that starts at a time.

    Args: released_us, the first and the last edge of the visible bins; parameter, to name in a refusal;
        trimmed, whether retention removed earlier bins.
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
