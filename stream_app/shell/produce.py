"""``stream-app produce``: the lines of a file, checked, with their own times or moved to now, for a topic."""

from __future__ import annotations

import csv
import json
import math
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import click

from stream_app.config import ClusterSettings, Settings, TopicSettings, load
from stream_app.config.source import format_of
from stream_app.config.values import format_duration
from stream_app.core.instants import format_instant
from stream_app.core.json_objects import is_object, names_of
from stream_app.kafka.cluster import Cluster
from stream_app.ports import OperatorError
from stream_app.shell.options import BROKER, bootstrap_option, live_pace
from stream_app.shell.pace import Behind
from stream_app.sources.decode import csv_names, csv_values
from stream_app.sources.finished_files import decompressed, one_line_each
from stream_app.sources.packed import is_packed
from stream_app.sources.shapes import why_no_header, why_no_lines
from stream_app.sources.starts import first_line, has_objects, lines_in, start_of
from stream_app.sources.times import TimeFormat, times_us

_LATE_ENOUGH_S = 0.002  # shorter waits cost more than they regulate
_TICKS_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class Production:
    """A file to send, the topic, and how to send it."""

    file: Path
    topic: str
    bootstrap_servers: str
    # the field whose value becomes the record's key, with dots for nested objects; None for no key
    key: str | None = None
    limit: int | None = None  # the largest number of lines to send; None for all
    partitions: int | None = None  # create the topic with this many partitions first; None if it exists
    # pace in log seconds per second; each event's time becomes the time at which it is sent
    as_live: float | None = None
    time_field: str | None = None  # where an event's time is, and how it is written
    time_format: TimeFormat = "iso8601"
    # authentication settings, with librdkafka's names. SECRET.
    security: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def cluster(self) -> Cluster:
        """The cluster of the topic."""
        return Cluster(self.bootstrap_servers, self.security)

    @property
    def is_csv(self) -> bool:
        """Whether the file is CSV, by its name; otherwise it is NDJSON."""
        return format_of(self.file) == "csv"


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--topic", "-t", required=True, help="The topic to send to.")
@bootstrap_option
@click.option(
    "--config",
    "-c",
    type=click.Path(path_type=Path),
    help="Configuration file whose section kafka has the cluster's address and credentials.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="If the topic does not exist, create it with this many partitions.",
)
@click.option(
    "--key", metavar="FIELD", help="Field whose value becomes the record's key; dots name nested fields."
)
@click.option(
    "--limit", type=click.IntRange(min=0), help="Send at most this many lines; 0 only creates the topic."
)
@click.option(
    "--as-live", metavar="PACE", help="Move the events' times to now, at this pace: a factor, or 3h/s."
)
@click.option(
    "--time-field", metavar="FIELD", help="With --as-live: field with the event's time, which is rewritten."
)
@click.option(
    "--time-format",
    type=click.Choice(["s", "ms", "us", "ns", "iso8601"]),
    default="iso8601",
    show_default=True,
    help="With --as-live: the format of the time.",
)
def produce(
    file: Path,
    topic: str,
    as_live: str | None,
    bootstrap_servers: str | None,
    config: Path | None,
    **options: Any,
) -> None:
    """Send the lines of FILE to a Kafka topic.

    FILE is NDJSON or CSV, by its name; compressed files are unpacked. The lines are sent in order and as they
    are, without their line ends, blank lines, the byte order mark and the header of CSV. A row of CSV with
    line breaks in quotes is one record. A file of which nothing could be counted is refused.

    --as-live rewrites each event's time so that the past happens now, at PACE: a service that counts live
    then has something to count. The command keeps no position: another start sends the whole file again.

    \b
    Examples:
      stream-app produce events.ndjson --topic clicks --partitions 4 --key user.id
      stream-app produce flights.ndjson --topic flights --as-live 3h/s --time-field scheduled
      stream-app produce events.ndjson --topic clicks --config app.yaml
    """
    if (as_live is None) != (options["time_field"] is None):
        raise click.UsageError("--as-live and --time-field need one another; write both or neither")
    from stream_app.shell.sending import send  # its packages may not be installed

    cluster = None if config is None else _cluster_that_has(load(config), topic)
    servers = bootstrap_servers or (BROKER if cluster is None else cluster.bootstrap_servers)
    security = {} if cluster is None else cluster.security
    pace = None if as_live is None else live_pace("--as-live", as_live)
    send(Production(file, topic, servers, as_live=pace, security=security, **options))


def _cluster_that_has(settings: Settings, topic: str) -> ClusterSettings | None:
    """Return the cluster where a stream reads the topic, else the one that needs no name."""
    if settings.kafka is None:
        return None
    sources = [stream.source for stream in settings.streams]
    of_topic = [source for source in sources if isinstance(source, TopicSettings) and source.topic == topic]
    return settings.kafka.clusters[of_topic[0].cluster if of_topic else ""]


def opened(what: Production) -> IO[bytes]:
    """Return the content of the file, decompressed. A file of which nothing could be counted is refused."""
    try:
        if not what.file.is_file():
            how = "is no file" if what.file.exists() else "does not exist"
            raise OperatorError(f"produce: {what.file} {how}; name a file with one event per line")
        if what.limit != 0 and (why := _why_no_events(what)):
            raise OperatorError(f"produce: {what.file}: {why}")
        return decompressed(what.file) if is_packed(what.file) else what.file.open("rb")
    except OSError as failure:
        raise OperatorError(f"produce: {what.file}: cannot be read: {failure.strerror}") from None


def _why_no_events(what: Production) -> str | None:
    start = start_of(what.file)
    if why := why_no_lines(start):
        return why
    if not (lines := lines_in(start)):
        return None  # the first line is long
    if not what.is_csv:
        if not has_objects(lines):
            return "none of its first lines is a JSON object; write one per line (CSV has a name in .csv)"
        return _why_not_as_asked(what, lines)
    if why := why_no_header(first_line(start), b"".join(lines[1:2])):
        return why
    return None if len(lines) > 1 else "it has a header line and no event; there is nothing to send"


def _why_not_as_asked(what: Production, lines: Sequence[bytes]) -> str | None:
    """Return why options do not fit the first events of a file of JSON lines."""
    if what.key is not None and all(key is None for key in map(key_reader(what), lines)):
        return f"none of its first events has the field {what.key}; correct --key"
    if what.as_live is not None and not any(map(LiveTimes(what).has_time, lines)):
        how = f"has a time in {what.time_field} that is read as {what.time_format}"
        return f"none of its first events {how}; correct --time-field or --time-format"
    return None


def event_check(what: Production) -> Callable[[bytes], bool]:
    """Return a function that tells whether a record can be decoded."""
    if not what.is_csv:
        return is_object
    width = len(_header(what))
    return lambda record: len(csv_values(record) or ()) == width


def _header(what: Production) -> list[str]:
    return csv_names(next(iter(lines_in(start_of(what.file))), b""))


class LiveTimes:
    """Moves the times of past events to now: the first is sent at once, the others at the given pace.

    An event that follows a later one in the file is sent at once with its own time, so it stays late.
    Args: wall_s, the clock in seconds since 1970; sleep, the function that waits.
    """

    def __init__(
        self,
        what: Production,
        wall_s: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        behind: Behind | None = None,
    ) -> None:
        if what.as_live is None or what.time_field is None:
            raise OperatorError(
                "produce: --as-live needs --time-field, the field that holds the event's time"
            )
        if what.is_csv:
            raise OperatorError("produce: --as-live rewrites events of JSON; send CSV as it is")
        self._what = what
        self._pace = what.as_live
        self._path = what.time_field
        self._wall_s = wall_s
        self._sleep = sleep
        self._behind = behind
        self._newest_s = -math.inf
        self._first: tuple[int, float] | None = None

    def move(self, record: bytes) -> bytes:
        """Wait for the event's moved time, then return the event with that time."""
        event = _parsed(record)
        found = _holder(event, self._path)
        then_us = None if found is None else self._read(found[0][found[1]])
        if found is None or then_us is None:
            return record  # sent unchanged; the service refuses it as it would refuse the original
        now_s = self._wall_s()
        self._first = self._first or (then_us, now_s)
        first_us, began_s = self._first
        at_s = began_s + (then_us - first_us) / 1e6 / self._pace
        if at_s >= self._newest_s:  # an earlier event is late by itself, not because of the pace
            self._newest_s = at_s
            if self._behind is not None:
                pace = format_duration(round(self._pace * 1e6))
                self._behind.by(now_s - at_s, f"--as-live {pace}/s")
        if at_s - now_s > _LATE_ENOUGH_S:
            self._sleep(at_s - now_s)
        within, name = found
        written = self._written(at_s)
        within[name] = str(written) if isinstance(within[name], str) else written
        return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()

    def has_time(self, record: bytes) -> bool:
        """Return whether an event has a time that can be moved."""
        found = _holder(_parsed(record), self._path)
        return found is not None and self._read(found[0][found[1]]) is not None

    def _read(self, value: Any) -> int | None:
        times, good = times_us([value], self._what.time_format)
        return int(times[0]) if good[0] else None

    def _written(self, at_s: float) -> str | int:
        if self._what.time_format == "iso8601":
            return format_instant(round(at_s * 1000) * 1000)
        return int(at_s * _TICKS_A_SECOND[self._what.time_format])


def _parsed(record: bytes) -> Any:
    try:
        return json.loads(record)
    except (ValueError, RecursionError):  # nested too deeply
        return None


def _holder(event: Any, path: str) -> tuple[dict[str, Any], str] | None:
    """Return the object that holds the value at a path, and the value's name there; None without one."""
    for name, rest in names_of(path) if isinstance(event, dict) else ():
        if name in event:
            return _holder(event[name], rest) if rest else (event, name)
    return None


def key_reader(what: Production) -> Callable[[bytes], bytes | None]:
    """Return a function that reads a record's key; None for a record without one."""
    if what.key is None:
        return lambda _record: None
    if what.is_csv:
        header = _header(what)
        if what.key not in header:
            raise OperatorError(f"produce: --key {what.key}: {what.file} has no such column")
        column = header.index(what.key)
        return lambda record: _csv_field(record, column)
    path = what.key
    return lambda record: _json_field(record, path)


def _csv_field(record: bytes, column: int) -> bytes | None:
    try:
        fields = next(csv.reader([record.decode(errors="replace")]), [])
    except csv.Error:  # a field longer than the reader takes
        return None
    return fields[column].encode() if column < len(fields) else None


def _json_field(record: bytes, path: str) -> bytes | None:
    found = _holder(_parsed(record), path)
    value = None if found is None else found[0][found[1]]
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def lines_of(what: Production, content: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines that hold events, without the header of a CSV file; each of its rows is one line."""
    first = next((line for line in content if line.strip()), b"")
    if what.is_csv:
        yield from one_line_each(content, len(csv_names(first)))
        return
    yield first.removeprefix(BOM_UTF8)  # the mark is the file's, not the event's
    yield from content
