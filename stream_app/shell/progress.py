"""What ``run`` shows of its streams: released values, and at the end of a replay the refused records."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from stream_app.config import ApiSettings, Settings, StreamSettings
from stream_app.config.access import is_loopback
from stream_app.core.incoming import REMEDIES, refused_because
from stream_app.core.instants import format_instant, parse_instant
from stream_app.core.segments.names import base_of, next_name, number_of
from stream_app.loops.configured import stored_strategy
from stream_app.ports.reader import PublicReader
from stream_app.shell.numbers import outward
from stream_app.shell.samples.findings import EXACT
from stream_app.wiring.storage import stored_counts

PLAIN_EVERY_S = 5.0
_RATE_OVER_S = 5.0
_BAR_CELLS = 24


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """The progress of one stream, from its last visible row."""

    stream: str  # its name in the store; numbers are of this generation
    bins: int  # bins released so far, of ``of_bins`` (None for a live stream, which has no last bin)
    of_bins: int | None
    value: float | None = None  # the running count of the epoch and its interval; None before the first bin
    lower: float = 0.0
    upper: float = 0.0
    confidence: float = 0.95
    since_us: int | None = None  # start of the epoch, at which the running count was 0
    until_us: int | None = None  # end of the last released bin
    private: bool = True
    complete: bool = False  # whether a replay has released its last bin
    epoch: int = 0  # of the last row; the running count is of this epoch only

    @classmethod
    def of_row(
        cls, row: dict[str, Any], of_bins: int | None, to_us: int | None, since_us: int | None = None
    ) -> StreamProgress:
        """Read the last released row of a stream: its count, or the count of its first cell."""
        lower, upper = row["interval"][0]
        until_us = parse_instant(row["end"])
        return cls(
            stream=row["stream"],
            bins=row["seq"],
            of_bins=of_bins,
            value=row["estimate"][0],
            lower=lower,
            upper=upper,
            confidence=row["confidence"],
            since_us=since_us,
            until_us=until_us,
            private=not row["not_private"] if "not_private" in row else row["private"],
            complete=to_us is not None and until_us >= to_us,
            epoch=row.get("epoch", 0),
        )

    @property
    def interval(self) -> str:
        """The confidence and the interval, as text."""
        low, high = outward(self.lower, self.upper)
        return f"{100 * self.confidence:.0f} %: {low} to {high}"

    @property
    def name(self) -> str:
        """The name of the stream, with the generation from the second one on."""
        number = number_of(self.stream)
        return base_of(self.stream) + (f", generation {number}" if number > 1 else "")

    @property
    def since(self) -> str:
        """From when on the count runs, as text."""
        if self.since_us is None:
            return ""
        later = self.epoch or number_of(self.stream) > 1
        whose = " in this epoch," if later else ""
        return f"{whose} since {format_instant(self.since_us)}:"

    def describe(self) -> str:
        """Return one plain line.

        >>> StreamProgress("clicks", 2, 4, 9.6, 3.0, 16.0, until_us=7_200_000_000).describe()
        'clicks: 2 of 4 bins closed, released until 1970-01-01T02:00:00Z, count 10 (95 %: 3 to 16)'
        >>> StreamProgress("clicks", 1, None, -0.3, -9.0, 9.0, until_us=3_600_000_000).describe()
        'clicks: 1 bin closed, released until 1970-01-01T01:00:00Z, count 0 (95 %: -9 to 9)'
        """
        total = f" of {self.of_bins:,}" if self.of_bins is not None else ""
        bins = "1 bin" if self.bins == 1 and not total else f"{self.bins:,}{total} bins"
        line = f"{self.name}: {bins} closed"
        if self.value is None or self.until_us is None:
            return line
        line += (
            f", released until {format_instant(self.until_us)}, count{self.since} "
            f"{self.value:z,.0f} ({self.interval})"
        )
        if self.complete and self.epoch:
            line += "; the page counts all epochs"
        return line if self.private else line + " NOT PRIVATE"


class BinRate:
    """The pace of one stream, in bins per second over the last few seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, bins: int, now_s: float) -> float:
        """Record the number of closed bins; return the recent pace."""
        self._seen.append((now_s, bins))
        while now_s - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()
        since_s, bins_then = self._seen[0]
        return (bins - bins_then) / (now_s - since_s) if now_s > since_s else 0.0


class PlainReport:
    """Lines for logs and pipes: every few seconds while there is progress, and at the end."""

    def __init__(self) -> None:
        self._last_s = float("-inf")
        self._shown: dict[str, int] = {}
        self._latest: Sequence[StreamProgress] = ()

    def say(self, line: str) -> None:
        """Print a message."""
        print(line, flush=True)

    def show(self, streams: Sequence[StreamProgress]) -> None:
        """Print streams with progress, at most every few seconds; a completed replay at once."""
        self._latest = streams
        due = time.monotonic() - self._last_s >= PLAIN_EVERY_S
        if due or any(
            stream.complete and stream.bins != self._shown.get(stream.stream) for stream in streams
        ):
            self._print_moved()

    def close(self) -> None:
        """Print the streams' last progress, if not yet printed."""
        self._print_moved()

    def _print_moved(self) -> None:
        for stream in self._latest:
            if stream.bins != self._shown.get(stream.stream, 0):
                self._shown[stream.stream] = stream.bins
                self.say(stream.describe())
                self._last_s = time.monotonic()


class TerminalReport:
    """A block of lines at the bottom of a terminal, three per stream."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rates: dict[str, BinRate] = {}
        self._live = Live(console=console, refresh_per_second=8, transient=False)
        self._live.start()

    def say(self, line: str) -> None:
        """Print a message above the progress lines."""
        self._console.print(escape(line), highlight=False)

    def show(self, streams: Sequence[StreamProgress]) -> None:
        """Redraw the progress lines."""
        lines = []
        for stream in streams:
            rate = self._rates.setdefault(stream.stream, BinRate()).add(stream.bins, time.monotonic())
            lines += [Text.from_markup(line) for line in _lines(stream, rate)]
        self._live.update(Group(*lines))

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._live.stop()


class Report(Protocol):
    """The lines of a running service on the terminal: events of its streams, and their progress."""

    def say(self, line: str) -> None:
        """Print a message."""

    def show(self, streams: Sequence[StreamProgress]) -> None:
        """Show the streams' progress."""


@contextmanager
def open_report() -> Iterator[Report]:
    """Yield a redrawn block on a terminal, plain lines elsewhere."""
    console = Console()
    report: PlainReport | TerminalReport = PlainReport()
    if console.is_terminal and sys.stdout.isatty():
        report = TerminalReport(console)
    try:
        yield report
    finally:
        report.close()


def _lines(stream: StreamProgress, rate: float) -> list[str]:
    """Return lines that fit a narrow terminal: the progress, the current count, and its time."""
    if stream.value is None or stream.until_us is None:
        return [f"[bold]{stream.name}[/]  [dim]waiting for the first bin to close[/]"]
    bar = ""
    if stream.of_bins:
        done = min(_BAR_CELLS, stream.bins * _BAR_CELLS // stream.of_bins)
        bar = f"  [cyan]{'━' * done}[/][dim]{'━' * (_BAR_CELLS - done)}[/]"
    of_bins = f"/{stream.of_bins:,}" if stream.of_bins is not None else ""
    slow = stream.of_bins is None and rate < 1  # a live stream that has caught up
    pace = "[green]complete[/]" if stream.complete else "" if slow else f"[dim]{rate:,.0f} bins/s[/]"
    count = "count" if stream.private else "[red]NOT PRIVATE[/] count"
    until = format_instant(stream.until_us)
    bins = "1 bin" if stream.bins == 1 and not of_bins else f"{stream.bins:,}{of_bins} bins"
    return [
        f"[bold]{stream.name}[/]{bar}  {bins}  {pace}".rstrip(),
        f"  {count} [bold green]{stream.value:z,.0f}[/] [dim]({stream.interval})[/]",
        f" {stream.since} until {until}",
    ]


def address(api: ApiSettings) -> str:
    """Return the URL of the page."""
    return f"http{'s' if api.tls else ''}://{_netloc(api.host, api.port)}/"


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def first_lines(settings: Settings, reader: PublicReader, *, serves: bool) -> list[str]:
    """Return who may read, if the API runs, and how this start continues each stream from earlier state."""
    lines = []
    if serves and settings.api.keys is None and settings.api.proxy_header is None:
        whose = "everybody on this machine" if is_loopback(settings.api.host) else "EVERYBODY WHO REACHES IT"
        lines.append(f"no API key is required: {whose} may read the released values")
    for stream in settings.streams:
        now = await progress_of(stream, reader)
        if now.until_us is None:
            said = f"nothing was released yet; {_begins(stream)}"
        elif now.complete:
            said = "already complete; what was released is served, nothing is measured again"
        else:
            said = f"going on from {format_instant(now.until_us)}; nothing is measured again"
        lines.append(f"{stream.name}: {said}")
    lines.append(f"refused records are listed with their reasons below {settings.state_dir}, in dead_letters")
    return lines


def listening_lines(role: str, settings: Settings) -> list[str]:
    """Return where a child listens, once it does."""
    if role == "api":
        boards = [f"board {one.name}: {address(settings.api)}boards/{one.name}" for one in settings.boards]
        return [*boards, f"page and API: {address(settings.api)}    (Ctrl-C ends it)"]
    if role != "ingest" or settings.ingest is None:
        return []
    ingest, scheme = settings.ingest, "http" if settings.ingest.tls is None else "https"
    place = f"{scheme}://{_netloc(ingest.host, ingest.port)}/v1/ingest"
    return [f"events: POST {place}/{name}" for name in settings.spools]


def _begins(stream: StreamSettings) -> str:
    """Return where counting begins, so that nobody waits for old events, which are refused."""
    if stream.declared.source.replay is not None:
        return "starting"
    first_us = stream.declared.time.first_us
    if first_us is not None:
        return f"counting begins at {format_instant(first_us)}, earlier events are refused"
    return "counting begins with the bin of the first start, earlier events are refused (time.first)"


async def progress_of(stream: StreamSettings, reader: PublicReader) -> StreamProgress:
    """Return the progress of a stream's newest generation with visible rows, from public values only."""
    state = await reader.public_state(stream.name)
    while state is not None:
        name = next_name(stream.name)
        following = await reader.public_state(name)
        if following is None or not following.visible_seq:
            break
        state, stream = following, replace(stream, name=name)
    # Released rows are of the bins that the stream began with; a start refuses other ones after these lines.
    begun = stream.declared if state is None else stored_strategy(stream.name, state.strategy).declared
    replay, binning, of_bins = begun.source.replay, begun.time.binning, None
    if replay is not None:
        first, last = binning.bin_of([replay.from_us, replay.to_us])
        of_bins = int(last - first)
    rows = await reader.rows(stream.name, state.visible_seq - 1, 1) if state and state.visible_seq else []
    if state is None or not rows:
        return StreamProgress(stream.name, 0, of_bins)
    row = json.loads(rows[-1][1])
    starts = {one.epoch: binning.start_us(one.first_bin) for one in state.epochs}
    return StreamProgress.of_row(row, of_bins, replay.to_us if replay else None, starts.get(row["epoch"]))


async def refused_lines(settings: Settings) -> list[str]:
    """Return a line for each reason of a refusal, by stream, and a line that these numbers are private."""
    try:
        counts = await stored_counts(settings)
    except OSError:
        return []
    lines = [line for stream, reasons in counts.items() for line in _refused(stream, reasons)]
    return [*lines, EXACT] if lines else []


def _refused(stream: str, counts: Mapping[str, int]) -> list[str]:
    """Return the lines of one stream, the most frequent reason first.

    >>> _refused("clicks", {"late": 3, "no_user": 4, "late_within_10": 3})
    ['clicks: 4 refused as no_user: they name no user; correct privacy.unit.user; lines of \
visitors are of a day whose key is destroyed (docs/runbook.md)', \
'clicks: 3 refused as late: they come after their bin closed; set a longer time.grace']
    """
    refused = {reason: number for reason, number in counts.items() if reason in REMEDIES and number}
    most = sorted(refused, key=lambda reason: -refused[reason])
    return [f"{stream}: {refused[reason]:,} refused as {refused_because(reason)}" for reason in most]
