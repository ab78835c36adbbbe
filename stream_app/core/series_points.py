"""The ranges that the points of a series count, and downsampling that keeps every peak."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from stream_app.core.kinds.tables import SeriesKind, Span


def downsampled(values: FloatArray, points: int) -> Int64Array:
    """Return the indices of the values to show, rising, at most ``points``.

    They are the first, the last, and the lowest and the highest value of every stretch between them.

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
    """Return the start and the end of each point's range, as ``StreamView.series`` defines them.

    Args: first, the stream's first bin.
    """
    if kind == "bin":
        starts = np.arange(span.start, span.stop - step + 1, step)
        return starts, starts + step
    stops = np.arange(span.start + (step if kind == "running" else window), span.stop + 1, step)
    return (np.full_like(stops, first) if kind == "running" else stops - window), stops
