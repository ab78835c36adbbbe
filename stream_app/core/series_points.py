"""Which ranges the points of a series count, and which points show every peak where they are too many."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from stream_app.core.kinds.tables import SeriesKind, Span


def downsampled(values: FloatArray, points: int) -> Int64Array:
    """Return which of the values to show, at most ``points``, rising: the first, the last, and the least and
    the greatest of every stretch between them.

    >>> downsampled(np.array([0.0, 1, 9, 1, 1, -5, 1, 0]), 6).tolist()
    [0, 1, 2, 4, 5, 7]
    """
    if len(values) <= points:
        return np.arange(len(values))
    if points < 4:
        return np.array([0, len(values) - 1])[-points:]
    edges = np.linspace(1, len(values) - 1, (points - 2) // 2 + 1).astype(np.int64)
    shown = {0, len(values) - 1}
    for start, stop in pairwise(edges):
        stretch = values[start:stop]
        shown |= {int(start + stretch.argmin()), int(start + stretch.argmax())}
    return np.array(sorted(shown), dtype=np.int64)


def point_ranges(
    kind: SeriesKind, span: Span, step: int, window: int, first: int
) -> tuple[Int64Array, Int64Array]:
    """Return where the range of each point of a series begins and ends, as ``StreamView.series`` says.

    Args: first, the stream's first bin.
    """
    if kind == "bin":
        starts = np.arange(span.start, span.stop - step + 1, step)
        return starts, starts + step
    stops = np.arange(span.start + (step if kind == "running" else window), span.stop + 1, step)
    return (np.full_like(stops, first) if kind == "running" else stops - window), stops
