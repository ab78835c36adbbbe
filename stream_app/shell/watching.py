"""``stream-app watch``: the releases of a running service as they come."""

from __future__ import annotations

import math
import queue
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, MutableSequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

import click
from rich.console import Console
from rich.live import Live

from stream_app.client import Client, ClientError, Gap, Release
from stream_app.client.answers import Summary
from stream_app.client.questions import Of
from stream_app.core.instants import parse_instant
from stream_app.ports import OperatorError
from stream_app.shell.numbers import outward, supported
from stream_app.shell.options import STREAM, service_options
from stream_app.shell.readers import NONE, of_option, service
from stream_app.shell.terminal import RunningChart, State, not_measured

_MOST_DRAWN = 512
_DRAWN_EVERY_S = 0.25
_ASKED_EVERY_S = 2.0
_ID = re.compile(r"([1-9][0-9]{0,8}:)?[0-9]{1,15}")
_LATE_US = 5_000_000  # a bin that is later than this is behind


class _ReleaseId(click.ParamType):
    """A release of a stream: its seq, after the generation unless that is the first."""

    name = "id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is. Raises: click.BadParameter."""
        if not _ID.fullmatch(value):
            self.fail(f"{value} is no release; write its number, for example 17, or 2:17", param, ctx)
        return value


@click.command()
@click.argument("stream", type=STREAM)
@service_options
@click.option(
    "--after",
    type=_ReleaseId(),
    help="Begin after this release: SEQ, or GENERATION:SEQ.  "
    "[default: a terminal is filled, otherwise the last]",
)
@click.option("--releases", type=click.IntRange(min=1), help="End after this many releases.")
@of_option
def watch(
    stream: str, url: str, api_key: str | None, after: str | None, releases: int | None, of: Of
) -> None:
    """Follow the running count of STREAM.

    A live chart on a terminal, otherwise a line per release.
    If the settings of STREAM change, its next generation follows; STREAM@1 names the first one alone.
    The count runs since the start of the epoch. The page, and stream-app query, add the epochs before it,
    and those of the streams that it continues.
    With --of sum or mean, the running sum or mean of the stream's amounts in its epoch instead. A terminal
    also shows whether the stream is live, behind, complete, or waiting for its first bin, and whether the
    service answers.

    \b
    Examples:
      stream-app watch departures
      stream-app watch sales --of sum
    """
    console = Console()
    with suppress(KeyboardInterrupt), service(url, api_key) as client:
        summary = client.summary(stream)  # ``follow`` waits for an unreachable service; this reports it
        if console.is_terminal and after is None and releases is None:
            first = max(summary.seq - shutil.get_terminal_size().columns, 0)
            after = str(first) if summary.generation == 1 else f"{summary.generation}:{first}"
        followed = numbers_of(client, stream, of, islice(client.follow(stream, after), releases))
        followed = noting_epochs(client, stream, followed)
        if console.is_terminal:
            _draw(console, Watched(client, url, stream, summary), followed, 0 if of == "count" else 2)
        else:
            print_lines(followed, summary.counted if of == "count" else of)


@dataclass
class Watched:
    """The last answer of the service about a stream, and since when it has not answered."""

    client: Client
    url: str
    stream: str
    summary: Summary
    lost_since_s: float | None = None  # by the monotonic clock; None while it answers

    def keep_asking(self) -> None:
        """Ask again and again, in a thread of its own."""
        while True:
            time.sleep(_ASKED_EVERY_S)
            try:
                self.summary, self.lost_since_s = self.client.summary(self.stream), None
            except ClientError:
                self.lost_since_s = self.lost_since_s or time.monotonic()

    def state(self) -> State:
        """Return the state of the stream now."""
        lost_s = None if self.lost_since_s is None else time.monotonic() - self.lost_since_s
        return state_of(self.summary, time.time_ns() // 1_000, self.url, lost_s)


def state_of(summary: Summary, now_us: int, url: str, lost_s: float | None) -> State:
    """Return the state of a stream in a word, and its consequence. Args: lost_s, since it answered last."""
    if lost_s is not None:
        return State("lost", f"{url} has not answered for {lost_s:.0f} s; trying again", "red")
    due = summary.next_release
    if summary.seq == 0 or summary.released_until is None:
        return State("waiting", f"for the first bin to close{f', at {due}' if due else ''}", "yellow")
    if summary.ends is not None:
        if parse_instant(summary.released_until) >= parse_instant(summary.ends):
            return State("complete", "no more bins will be released", "green")
        if due is None:
            return State("replay", f"until {summary.ends}", "cyan")
    if due is None:
        return State("waiting", "for an epoch to begin", "yellow")
    if now_us > parse_instant(due) + _LATE_US:
        return State("behind", f"the next bin was due at {due}", "yellow")
    return State("live", f"next bin at {due}", "green")


def _draw(console: Console, watched: Watched, releases: Iterator[Release], most_places: int) -> None:
    """Draw a chart until the releases end, or for ever; a thread waits for them."""
    kept: deque[Release] = deque(maxlen=_MOST_DRAWN)
    arriving: queue.Queue[Release | Exception | None] = queue.Queue()

    def follow() -> None:
        try:
            for release in releases:
                arriving.put(release)
            arriving.put(None)
        except Exception as failure:  # raised again below
            arriving.put(failure)

    for work in (follow, watched.keep_asking):
        threading.Thread(target=work, daemon=True).start()
    chart = RunningChart(
        watched.summary.title or watched.summary.stream, [], watched.summary.timezone, most_places
    )
    with Live(chart, console=console, auto_refresh=False) as live:
        while True:
            more = arrived(arriving, kept)
            noun = watched.summary.counted if most_places == 0 else ""
            drawn = replace(
                chart, releases=list(kept), state=watched.state(), noun=noun, bin=watched.summary.bin
            )
            live.update(drawn, refresh=True)
            if not more:
                return


def arrived(arriving: queue.Queue[Release | Exception | None], kept: MutableSequence[Release]) -> bool:
    """Take the releases that arrive within a quarter of a second; return False after the last one."""
    until_s = time.monotonic() + _DRAWN_EVERY_S
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            release = arriving.get(timeout=left_s)
        except queue.Empty:
            return True
        if release is None:
            return False
        if isinstance(release, Exception):
            raise release
        if release.value == release.value:  # a mean of too few events is no point of a chart
            kept.append(release)
    return True


def print_lines(releases: Iterator[Release], number: str) -> None:
    """Print a line per release; explain its columns and the counts on the error output."""
    said = ""
    for release in releases:
        if not said:
            sure = f"{100 * release.row['confidence']:g} % " if "confidence" in release.row else ""
            ends = "" if release.interval is None else f", both ends of its {sure}interval"
            click.echo(f"Columns, separated by tabs: end of the bin, {number}{ends}.", err=True)
        words = _meaning(release)
        if words != said:
            said = words
            click.echo(said, err=True)
        click.echo(_line(release))


def _meaning(release: Release) -> str:
    return release.meaning + (f" Each line: {release.counted}." if release.counted else "")


def _line(release: Release) -> str:
    low, high = release.interval or (release.value, release.value)
    places = supported((high - low) / 2)
    ends = () if release.interval is None else outward(low, high, places)
    value = f"{release.value:z.{places}f}" if release.value == release.value else NONE
    numbers = "\t".join([value, *(end.replace(",", "") for end in ends)])
    return f"{release.end}\t{numbers}" + ("" if release.private else "\tNOT PRIVATE")


_SINCE = ", since the start of the epoch."


def numbers_of(client: Client, stream: str, of: Of, releases: Iterator[Release]) -> Iterator[Release]:
    """Yield releases with a running count, sum or mean of their epoch as their value.

    A release holds its count and its sum. The service is asked for each mean.
    """
    if of == "count":
        return releases
    return map(_with_total, releases) if of == "sum" else _with_means(client, stream, releases)


def noting_epochs(client: Client, stream: str, releases: Iterator[Release]) -> Iterator[Release]:
    """Yield releases with the start of their running number, and the gaps before it."""
    last, note = None, ""
    for release in releases:
        if last is None:
            if since := client.epochs(_generation(client, stream, release)).get(release.row["epoch"]):
                note = f"Running numbers are since {since}, the start of the epoch."
        elif _epoch(release) != _epoch(last):
            what = "An epoch" if release.generation == last.generation else "An epoch with other settings"
            note = f"{what} began at {release.start}: its running numbers start at 0."
            if release.start != last.end:
                note += f" {not_measured([Gap(last.end, release.start)], None)}"
        last = release
        yield replace(release, meaning=f"{release.meaning} {note}".strip())


def _epoch(release: Release) -> tuple[int, int]:
    """Return a release's epoch: each generation numbers its own."""
    return release.generation, release.row["epoch"]


def _generation(client: Client, stream: str, release: Release) -> str:
    """Return the name of the generation that a release is of."""
    is_newest = client.summary(stream).generation == release.generation
    return stream if is_newest else f"{stream}@{release.generation}"


def _with_total(release: Release) -> Release:
    if release.total is None:
        raise OperatorError(
            f"--of sum: release {release.seq} says no sum, because the stream has none or an older version "
            "wrote it; leave --of out, or ask stream-app query --of sum"
        )
    meaning = f"The {release.added}{_SINCE}"
    return replace(release, value=release.total, interval=release.total_interval, meaning=meaning, counted="")


def _with_means(client: Client, stream: str, releases: Iterator[Release]) -> Iterator[Release]:
    starts: dict[tuple[int, int], str] = {}
    for release in releases:
        if _epoch(release) not in starts:
            name = _generation(client, stream, release)
            starts = {(release.generation, epoch): at for epoch, at in client.epochs(name).items()}
        found = client.mean(name, starts[_epoch(release)], release.end)
        yield replace(
            release,
            value=math.nan if found.value is None else found.value,
            interval=(found.lower, found.upper),
            meaning=f"The {found.counted}{_SINCE}",
            counted="",
        )
