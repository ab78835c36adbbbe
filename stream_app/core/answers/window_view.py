"""Complete windows of a stream, as readers see them: their bins and their histograms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dphist.arrays import FloatArray, Int64Array
from dphist.units import UNITS_PER_COUNT
from dphist.windows.design import WindowDesign
from stream_app.core.answers.answered import QueryError
from stream_app.core.answers.query import StreamView
from stream_app.core.kinds.tables import WINDOWS, Span


class Window(NamedTuple):
    """One window: its bins, absolute, and its released numbers in counts, shape (histograms, buckets).

    Args: earlier and later, the first bins after the previous and after the next window, None if there is
        none; available, the number of complete windows.
    """

    span: Span
    counts: FloatArray
    earlier: int | None
    later: int | None
    available: int


def windows_of(view: StreamView) -> WindowDesign:
    """Return the design of a stream's windows. Raises: QueryError if it has none."""
    design = view.strategy.kind.windows
    if design is None:
        raise QueryError("this stream has no windows; write mode: window", "stream")
    return design


def window_ending(view: StreamView, end_us: int | None) -> Window:
    """Return the window that ends at an instant; None means the last window.

    Raises: QueryError if the stream has no windows, none is complete, or none ends there.
    """
    ends = _ends(view)
    if end_us is None:
        return _window(view, ends, len(ends) - 1)
    bin = int(view.binning.bin_of([end_us])[0])  # the bin that contains the instant
    inside = view.binning.start_us(bin) != end_us
    place = int(np.searchsorted(ends, bin + inside))
    if inside or place == len(ends) or ends[place] != bin:
        near = [view.binning.start_us(int(ends[one])) for one in (place - 1, place) if 0 <= one < len(ends)]
        raise QueryError("end: no window ends there; name the end of a complete one", "end", near)
    return _window(view, ends, place)


def window_until(view: StreamView, until_us: int) -> Window:
    """Return the last window that ended by an instant.

    Raises: QueryError if the stream has no windows, or none had ended.
    """
    ends = _ends(view)
    place = int(np.searchsorted(ends, view.binning.bin_of([until_us])[0], side="right")) - 1
    if place < 0:
        raise QueryError(
            "until: no window had ended by then; name a later instant",
            "until",
            [view.binning.start_us(int(ends[0]))],
        )
    return _window(view, ends, place)


def _ends(view: StreamView) -> Int64Array:
    """Return the first bin after each complete window. Raises: QueryError if there is no such window."""
    bins, none = windows_of(view).bins, np.zeros(0, np.int64)
    numbers = ((epoch.record.first_bin, np.arange(1, epoch.held(WINDOWS) + 1)) for epoch in view.epochs)
    ends = np.concatenate([none, *(first + bins * number for first, number in numbers)])
    if not len(ends):
        raise QueryError("no window is complete yet; ask again later", "end")
    return ends


def _window(view: StreamView, ends: Int64Array, place: int) -> Window:
    design, stop = windows_of(view), int(ends[place])
    earlier = int(ends[place - 1]) if place else None
    later = int(ends[place + 1]) if place + 1 < len(ends) else None
    before = np.cumsum([0, *(epoch.held(WINDOWS) for epoch in view.epochs)])
    number = int(np.searchsorted(before, place, side="right")) - 1
    row = view.epochs[number].rows(WINDOWS)[place - before[number]]
    counts = np.asarray(row.reshape(design.histograms, design.buckets) / UNITS_PER_COUNT, np.float64)
    return Window(Span(stop - design.bins, stop), counts, earlier, later, len(ends))
