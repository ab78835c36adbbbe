"""Complete windows of a stream, as readers see them: which bins each one counted, and its histograms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dphist.tree.upward import UNITS_PER_COUNT
from stream_app.core.epoch_view import Float64Array, Span
from stream_app.core.query import QueryError, StreamView


class Window(NamedTuple):
    """One window: its bins, absolute, and its released numbers in counts, shape (histograms, buckets)."""

    span: Span
    counts: Float64Array


def window_ending(view: StreamView, end_us: int | None) -> Window:
    """Return the window that ends at an instant; None stands for the last one.

    Raises: QueryError where the stream has no windows, none is complete, or none ends there.
    """
    design = view.strategy.window
    if design is None:
        raise QueryError("this stream has no windows; write mode: window, and start another stream", "stream")
    ends = np.concatenate(
        [epoch.record.first_bin + design.bins * np.arange(1, len(epoch.windows) + 1) for epoch in view.epochs]
        or [np.zeros(0, np.int64)]
    )
    if not len(ends):
        raise QueryError("no window is complete yet; ask again later", "end")
    ends_us = np.array([view.binning.start_us(int(end)) for end in ends])
    place = len(ends) - 1 if end_us is None else int(np.searchsorted(ends_us, end_us))
    if end_us is not None and (place == len(ends) or ends_us[place] != end_us):
        near = [int(ends_us[one]) for one in (place - 1, place) if 0 <= one < len(ends)]
        raise QueryError("end: no window ends there; name the end of a complete one", "end", near)
    stop = int(ends[place])
    for epoch in view.epochs:
        index, rest = divmod(stop - epoch.record.first_bin, design.bins)
        if not rest and 1 <= index <= len(epoch.windows):
            counts = epoch.windows[index - 1].reshape(design.histograms, design.buckets) / UNITS_PER_COUNT
            return Window(Span(stop - design.bins, stop), np.asarray(counts, np.float64))
    raise AssertionError("an end that was found belongs to an epoch")
