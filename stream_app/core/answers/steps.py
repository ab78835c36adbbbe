"""Steps of charts over the bins of a stream: of bins, and of calendar days or months of a time zone.

A step is a number of the last stream's bins. Over earlier streams of a history, which may have other bins,
its edges must be edges of their bins, too. Steps of the calendar are exact if they are edges of bins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dphist.arrays import BoolArray, Int64Array
from stream_app.core.answers.answered import QueryError
from stream_app.core.counting.bins import Binning
from stream_app.core.instants import format_instant, zone_key
from stream_app.core.kinds.tables import SeriesKind, Span

DAY_US = 86_400_000_000
MONDAY = 4  # the first one since 1970
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_1970 = date(1970, 1, 1)
_MONTHS = 12


def check_zone(name: str) -> str:
    """Return the name of a time zone. Raises: QueryError."""
    try:
        return zone_key(name)
    except (ValueError, KeyError, OSError):
        text = (
            f"timezone: {name[:80]!r} is not a time zone; write one of the tz database, such as Europe/Paris"
        )
        raise QueryError(text, "timezone") from None


@dataclass(frozen=True, slots=True)
class CalendarStep:
    """A number of calendar days or months of a time zone.

    A day has 23 to 25 hours where the clocks change. Weeks begin on Mondays unless another day is chosen.
    Three months begin in January, April, July and October, and twelve in January.

    Args: count, of days or months; weekday, on which groups of 7 days begin, 0 for Monday.

    >>> quarters = CalendarStep(3, "months", "Europe/Paris")
    >>> format_instant(quarters.start_us(quarters.group_of(1_400_000_000_000_000)))
    '2014-03-31T22:00:00Z'
    """

    count: int
    unit: Literal["days", "months"]
    zone: str
    weekday: int = 0

    def group_of(self, time_us: int) -> int:
        """Return the group that an instant is in: a number that grows by one from group to group."""
        [day] = Binning(DAY_US, self.zone).bin_of([time_us]).tolist()
        if self.unit == "days":
            return int(day - MONDAY - self.weekday) // self.count
        on = _1970 + timedelta(days=day)
        return (_MONTHS * on.year + on.month - 1) // self.count

    def start_us(self, group: int) -> int:
        """Return the first instant of a group."""
        day = group * self.count + MONDAY + self.weekday
        if self.unit == "months":
            year, month = divmod(group * self.count, _MONTHS)
            day = (date(year, month + 1, 1) - _1970).days
        return Binning(DAY_US, self.zone).start_us(day)

    def is_edge(self, time_us: int) -> bool:
        """Return whether a group begins at an instant."""
        return self.start_us(self.group_of(time_us)) == time_us

    def groups(self, binning: Binning, span: Span, most: int) -> list[Span]:
        """Return groups that cover a range of bins; the first and the last may be shorter.

        Args: most, the largest number of groups.
        Raises: QueryError if one begins inside a bin, or there are more groups.

        >>> day, hours = CalendarStep(1, "days", "America/New_York"), Binning(3_600_000_000)
        >>> [b - a for a, b in day.groups(hours, Span(380_086, 380_158), 9)]
        [6, 24, 24, 18]
        """
        start_us, stop_us = binning.start_us(span.start), binning.start_us(span.stop)
        begun = range(self.group_of(start_us) + 1, self.group_of(stop_us - 1) + 1)
        if len(begun) >= most:
            least = -(-(len(begun) + 1) * self.count // most)
            raise QueryError(
                f"{self.unit}: at most {most:,} groups of {self.unit}; write {least} or more", self.unit
            )
        starts = np.array([self.start_us(group) for group in begun], dtype=np.int64)
        bins = binning.bin_of(starts)
        for at_us, bin in zip(starts.tolist(), bins.tolist(), strict=True):
            if binning.start_us(bin) != at_us:
                raise QueryError(
                    f"timezone: a day of {self.zone} begins inside a bin, at {format_instant(at_us)}; "
                    "leave out timezone for days of UTC, or name a zone whose midnights are edges of bins",
                    "timezone",
                )
        inner = {bin for bin in bins.tolist() if span.start < bin < span.stop}
        return [Span(*edges) for edges in pairwise(sorted({span.start, *inner, span.stop}))]

    @property
    def text(self) -> str:
        """The length of a step, in words."""
        return f"{self.count} {self.unit}" if self.count > 1 else f"a {self.unit.removesuffix('s')}"

    def is_whole(self, binning: Binning, group: Span) -> bool:
        """Return whether a group of bins begins and ends where groups of the calendar do."""
        return self.is_edge(binning.start_us(group.start)) and self.is_edge(binning.start_us(group.stop))


class Piece(NamedTuple):
    """The bins of one stream in a history. Args: first, its first bin here; shift, to its own numbers."""

    binning: Binning
    first: int
    shift: int


@dataclass(frozen=True, slots=True)
class JoinedBinning(Binning):
    """The bins of several streams, one after the other. Bins of the last one keep their numbers.

    Args: bin_us, timezone, of the last stream; pieces, oldest first; the first has no beginning.

    >>> days = JoinedBinning.of([(Binning(86_400_000_000), 0), (Binning(3_600_000_000), 86_400_000_000)])
    >>> [days.start_us(bin) // 3_600_000_000 for bin in (22, 23, 24, 25)]
    [-24, 0, 24, 25]
    >>> days.bin_of([-1, 86_400_000_000]).tolist()
    [22, 24]
    """

    pieces: tuple[Piece, ...] = ()

    @classmethod
    def of(cls, streams: Sequence[tuple[Binning, int]]) -> JoinedBinning:
        """Return the bins of streams, oldest first. Args: for each its bins, and where it begins."""
        [*_, (last, begins_us)] = streams
        number = int(last.bin_of([begins_us])[0])
        pieces = [Piece(last, number, 0)]
        for (binning, starts_us), (_, ends_us) in reversed(list(pairwise(streams))):
            stop, first = binning.bin_of([ends_us, starts_us]).tolist()
            shift, number = stop - number, number - (stop - first)
            pieces.append(Piece(binning, number, shift))
        return cls(last.bin_us, last.timezone, tuple(reversed(pieces)))

    @property
    def last(self) -> Binning:
        """The bins of the last stream."""
        return self.pieces[-1].binning

    def start_us(self, bin: int) -> int:
        """Return the first instant of a bin."""
        piece = next((one for one in reversed(self.pieces) if one.first <= bin), self.pieces[0])
        return piece.binning.start_us(bin + piece.shift)

    def bin_of(self, times_us: ArrayLike) -> Int64Array:
        """Return the bin of each instant. Args: times, shape (n,), microseconds since 1970 UTC."""
        times = np.asarray(times_us, dtype=np.int64)
        found = self.pieces[0].binning.bin_of(times) - self.pieces[0].shift
        for binning, first, shift in self.pieces[1:]:
            begun = times >= binning.start_us(first + shift)
            found[begun] = binning.bin_of(times[begun]) - shift
        return found

    def touched(self, span: Span) -> list[tuple[Piece, int]]:
        """Return the earlier pieces in a range, each with the bin at which the next piece begins."""
        ends = (piece.first for piece in self.pieces[1:])
        within = [(one, end) for one, end in zip(self.pieces, ends, strict=False) if end > span.start]
        return [(one, end) for one, end in within if one is self.pieces[0] or one.first < span.stop]


class Grid(NamedTuple):
    """Where the steps of a range may begin and end.

    Args: binning; span, the range; least, the fewest bins of a step whose edges are edges everywhere in it.
    """

    binning: Binning
    span: Span
    least: int

    @classmethod
    def of(cls, binning: Binning, span: Span) -> Grid:
        """Return the grid of a range."""
        if not isinstance(binning, JoinedBinning):
            return cls(binning, span, 1)
        lengths = [one.binning.bin_us for one, _ in binning.touched(span) if one.binning.timezone is None]
        if binning.timezone is not None:
            lengths = []  # whether their midnights are edges is seen later
        return cls(binning, span, math.lcm(binning.bin_us, *lengths) // binning.bin_us)

    @property
    def _is_joined(self) -> bool:
        return isinstance(self.binning, JoinedBinning) and bool(self.binning.touched(self.span))

    @property
    def steps(self) -> Span:
        """The bins of the last stream within the range, from a multiple of ``least`` on."""
        start, stop = self.around
        if not self._is_joined:
            return self.span
        times = self._times(np.array([start, stop]))
        start += int(times[0] < self.binning.start_us(self.span.start))
        stop -= int(times[1] > self.binning.start_us(self.span.stop))
        return Span(-(-start // self.least) * self.least, stop)

    @property
    def around(self) -> Span:
        """The bins of the last stream that cover the range."""
        if not isinstance(self.binning, JoinedBinning) or not self._is_joined:
            return self.span
        ends_us = [self.binning.start_us(self.span.start), self.binning.start_us(self.span.stop) - 1]
        start, last = self.binning.last.bin_of(ends_us).tolist()
        return Span(start, last + 1)

    def check_step(self, step: int, parameter: str = "step") -> None:
        """Check that edges of steps are edges of all bins in the range. Raises: QueryError."""
        if step % self.least:
            raise self._refusal(parameter, step)

    def here(self, bins: Int64Array, parameter: str = "step") -> Int64Array:
        """Convert bins of the last stream into bins of the history with the same start.

        Raises: QueryError if one begins inside a bin of an earlier stream.
        """
        if not self._is_joined:
            return bins
        ends_us = (self.binning.start_us(self.span.start), self.binning.start_us(self.span.stop))
        times = np.clip(self._times(bins.ravel()), *ends_us)
        found = self.binning.bin_of(times)
        starts = np.array([self.binning.start_us(bin) for bin in found.tolist()], np.int64)
        if np.any(starts != times):
            raise self._refusal(parameter, 0)
        return found.reshape(bins.shape)

    def has(self, bins: Int64Array) -> BoolArray:
        """Return whether bins of the last stream begin within the range."""
        if not self._is_joined:
            return np.full(bins.shape, True)
        ends_us = (self.binning.start_us(self.span.start), self.binning.start_us(self.span.stop))
        times = self._times(bins.ravel()).reshape(bins.shape)
        return np.asarray((ends_us[0] <= times) & (times <= ends_us[1]))

    def windows(self, stops: Int64Array, window: int) -> tuple[Int64Array, Int64Array]:
        """Return the windows that end at some edges of the range, except those that begin inside a bin.

        Args: window, in bins of the last stream.
        """
        if not isinstance(self.binning, JoinedBinning) or not self._is_joined:
            kept = stops - window >= self.span.start
            return stops[kept] - window, stops[kept]
        ends_us = np.array([self.binning.start_us(stop) for stop in stops.tolist()], np.int64)
        there = self.binning.last.bin_of(ends_us)
        begins_us = self._times(there - window)
        found = self.binning.bin_of(begins_us)
        starts_us = np.array([self.binning.start_us(bin) for bin in found.tolist()], np.int64)
        is_edge = (starts_us == begins_us) & (self._times(there) == ends_us) & (found >= self.span.start)
        return found[is_edge], stops[is_edge]

    def _times(self, bins: Int64Array) -> Int64Array:
        assert isinstance(self.binning, JoinedBinning)
        last = self.binning.last
        if last.timezone is None:
            return bins * last.bin_us
        return np.array([last.start_us(bin) for bin in bins.tolist()], np.int64)

    def _refusal(self, parameter: str, step: int) -> QueryError:
        assert isinstance(self.binning, JoinedBinning)
        fits = [
            one.binning.timezone is None and step * self.binning.bin_us % one.binning.bin_us == 0
            for one, _ in self.binning.touched(self.span)
        ]
        place = len(fits) - 1 - fits[::-1].index(False) if False in fits else len(fits) - 1
        piece, end = self.binning.touched(self.span)[place]
        edge_us = self.binning.start_us(end)
        remedy = f"write {-(-step // self.least) * self.least}" if step else ""
        if piece.binning.timezone is not None:
            remedy = f"ask for days, with timezone={piece.binning.timezone}"
        remedies = " or ".join(filter(None, [remedy, "begin there or later"]))
        line = (
            f"a bin is {piece.binning.text} before {format_instant(edge_us)}, and a step must fit; {remedies}"
        )
        return QueryError(f"{parameter}: {line}", parameter, [edge_us])


def point_ranges(
    binning: Binning, kind: SeriesKind, span: Span, step: int, window: int, first: int
) -> tuple[Int64Array, Int64Array]:
    """Return the start and the end of each point's range; ``StreamView.series`` says what they are.

    A running count or a window with a step of 1 has a point at every edge, whatever the bins are.
    Args: first, the stream's first bin.
    Raises: QueryError for a step or a window that an earlier stream's bins do not fit.
    """
    grid = Grid.of(binning, span)
    if kind == "window":
        grid.check_step(window, "window")
    if step == 1 and kind != "bin":
        stops = np.arange(span.start + 1, span.stop + 1)
        return (np.full_like(stops, first), stops) if kind == "running" else grid.windows(stops, window)
    grid.check_step(step)
    start, stop = grid.steps
    if kind == "bin":
        edges = np.arange(start, stop - step + 1, step)
        return grid.here(edges), grid.here(edges + step)
    stops = np.arange(start + (step if kind == "running" else window), stop + 1, step)
    starts = np.full_like(stops, first) if kind == "running" else grid.here(stops - window)
    return starts, grid.here(stops)
