"""Text for readers on the terminal: a chart of a running count, and ranges of time.

Times are in UTC, or calendar days of the stream's time zone.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import click
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from stream_app.client import Gap, Release
from stream_app.config.settings import DAY_US
from stream_app.core.counting.bins import Binning
from stream_app.core.instants import parse_instant
from stream_app.shell.numbers import outward, supported

_HEIGHT, _LEAST_HEIGHT = 14, 4
_LINES_BESIDE = 8  # of a chart, so that all of it stays on the screen
_LABEL_CELLS = 12
_UNLIMITED = 100_000  # columns
_MOST_GAPS = 3  # named in a line


def print_whole(table: Table, note: str = "") -> None:
    """Print a table with every cell whole, and a note. The terminal breaks lines that are wider than it."""
    console = Console()
    unlimited = console.options.update(max_width=_UNLIMITED)
    width = max(console.width, table.__rich_measure__(console, unlimited).maximum)
    Console(width=width).print(table)
    if note:
        console.print(note, style="dim")


def echo_wrapped(line: str) -> None:
    """Print a line, broken between words where a terminal would break it within one.

    Without a terminal, and without COLUMNS, the line stays whole: programs search it.
    """
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    columns = shutil.get_terminal_size().columns if narrow else _UNLIMITED
    click.echo("\n".join(textwrap.wrap(line, columns, break_on_hyphens=False)))


@dataclass(frozen=True)
class State:
    """The state of a stream in one word, and a sentence about it."""

    word: str
    said: str
    colour: str


@dataclass(frozen=True)
class RunningChart:
    """A chart of a stream's last releases across the terminal: values and their intervals."""

    stream: str
    releases: Sequence[Release]
    zone: str | None = None  # whose calendar days the bins are
    most_places: int = 0  # decimals that a value may have: 0 for counts
    state: State | None = None
    noun: str = ""  # the counted things
    bin: str = ""  # the length of a bin, in words

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state = self.state and Text.assemble(
            (self.state.word, f"bold {self.state.colour}"), f": {self.state.said}"
        )
        if not self.releases:
            yield Text(self.stream, "bold")
            yield state or Text("waiting for the first bin to close")
            return
        shown = self.releases[-max(options.max_width - _LABEL_CELLS - 1, 1) :]
        last = shown[-1]
        yield self._number(last)
        yield Text(f"until {_end_in_words(last.end, self.zone)}")
        if state:
            yield state
        if last.meaning:
            yield Text(last.meaning, "dim")
        yield from self._chart(shown, max(min(_HEIGHT, console.size.height - _LINES_BESIDE), _LEAST_HEIGHT))

    def _number(self, last: Release) -> Text:
        low, high = last.interval or (last.value, last.value)
        places = supported((high - low) / 2, self.most_places)
        sure = ""
        if last.interval is not None:
            said = f"{100 * last.row['confidence']:g} %: " if "confidence" in last.row else ""
            sure = f"  ({said}{' to '.join(outward(*last.interval, places))})"
        return Text.assemble(
            (f"{self.stream}  ", "bold"),
            (f"{last.value:z,.{places}f}", "bold green"),
            f" {last.counted or self.noun}".rstrip(),
            sure,
            ("" if last.private else "  NOT PRIVATE", "red"),
        )

    def _chart(self, shown: Sequence[Release], height: int) -> Iterator[Text]:
        points = [(one.value, *(one.interval or (one.value, one.value))) for one in shown]
        top, bottom = max(point[2] for point in points), min(point[1] for point in points)
        for row, line in enumerate(_drawn(points, height)):
            label = top if row == 0 else bottom if row == height - 1 else None
            yield Text.assemble(
                (f"{label:>z{_LABEL_CELLS},.0f} " if label is not None else " " * (_LABEL_CELLS + 1), "dim"),
                line,
            )
        legend = f"{len(shown):,} bins{f' of {self.bin}' if self.bin else ''}, from {shown[0].start}"
        yield Text(f"{legend}; ● value, ░ its interval; Ctrl-C ends the view", "dim")


def _drawn(points: Sequence[tuple[float, float, float]], height: int) -> list[str]:
    """Return lines of characters, top line first, with a column per (value, lower, upper).

    >>> _drawn([(1, 0, 2), (2, 1, 3), (4, 4, 4)], 5)
    ['  ●', ' ░ ', '░● ', '●░ ', '░  ']
    """
    bottom, top = min(point[1] for point in points), max(point[2] for point in points)
    scale = (height - 1) / (top - bottom) if top > bottom else 0.0

    def row(value: float) -> int:
        return height - 1 - round((value - bottom) * scale)

    cells = [[" "] * len(points) for _ in range(height)]
    for column, (value, lower, upper) in enumerate(points):
        for line in range(row(upper), row(lower) + 1):
            cells[line][column] = "░"
        cells[row(value)][column] = "●"
    return ["".join(line) for line in cells]


def span_in_words(start: str, end: str, zone: str | None) -> str:
    """Return a range of bins as text; a range of days ends with the last day included.

    Args: start and end, RFC 3339, edges of bins; zone, if bins are calendar days in it, else None.

    >>> span_in_words("2013-03-28T23:00:00Z", "2013-04-03T22:00:00Z", "Europe/Paris")
    '29 Mar – 3 Apr 2013, whole days of Europe/Paris'
    >>> span_in_words("2013-03-28T23:00:00Z", "2013-03-29T00:00:00Z", None)
    'from 2013-03-28T23:00:00Z to 2013-03-29T00:00:00Z'
    """
    if zone is None:
        return f"from {start} to {end}"
    return f"{days_in_words(start, end, zone)}, whole days of {zone}"


def not_measured(gaps: Sequence[Gap], zone: str | None) -> str:
    """Return a sentence about the parts of a range that no epoch measured; it names the newest three.

    >>> not_measured([Gap("2013-01-01T03:00:00Z", "2013-01-01T05:00:00Z")], None)
    'Not measured, and in no number here: from 2013-01-01T03:00:00Z to 2013-01-01T05:00:00Z.'
    """
    named = [span_in_words(gap.start, gap.end, zone) for gap in gaps[-_MOST_GAPS:]]
    more = [f"{len(gaps) - _MOST_GAPS:,} times before"] if len(gaps) > _MOST_GAPS else []
    return f"Not measured, and in no number here: {'; '.join([*more, *named])}."


def days_in_words(start: str, end: str, zone: str) -> str:
    """Return the calendar days between two midnights of a zone as text, the last day included.

    >>> days_in_words("2013-03-31T22:00:00Z", "2013-04-07T22:00:00Z", "Europe/Paris")
    '1–7 Apr 2013'
    """
    # A day that the zone skipped starts and ends at the same instant.
    last = _day(end, zone, before_us=1) if start != end else _day(end, zone) - timedelta(days=1)
    first = min(_day(start, zone), last)
    if first == last:
        return _written(last)
    if first.year != last.year:
        return f"{_written(first)} – {_written(last)}"
    if first.month != last.month:
        return f"{first.day} {first:%b} – {_written(last)}"
    return f"{first.day}–{_written(last)}"


def _end_in_words(end: str, zone: str | None) -> str:
    return end if zone is None else f"the end of {_written(_day(end, zone, before_us=1))} ({zone})"


def _written(day: date) -> str:
    return f"{day.day} {day:%b %Y}"


def _day(instant: str, zone: str, before_us: int = 0) -> date:
    [day] = Binning(DAY_US, zone).bin_of([parse_instant(instant) - before_us]).tolist()
    return date(1970, 1, 1) + timedelta(days=day)
