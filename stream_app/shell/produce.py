"""``stream-app produce``: send the lines of a file to a Kafka topic, with their times or moved to now."""

from __future__ import annotations

import asyncio
import csv
import json
import math
import os
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import click
from kafka import KafkaAdminClient, KafkaProducer, codec
from kafka.admin import NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from stream_app.config.source import format_of
from stream_app.config.values import format_duration
from stream_app.core.instants import format_instant
from stream_app.core.json_objects import is_object
from stream_app.kafka_cluster import Cluster, reach
from stream_app.ports import OperatorError
from stream_app.shell.behind import Behind
from stream_app.sources.copies import GZIP
from stream_app.sources.decode import csv_names, csv_values
from stream_app.sources.finished_files import decompressed
from stream_app.sources.shapes import why_no_lines
from stream_app.sources.starts import has_objects, lines_in, start_of, why_no_header
from stream_app.sources.times import TimeFormat, times_us

_TICKS_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EVENT = {False: "a JSON object", True: "a line of CSV with a value for each column"}
_SHOW_EVERY_S = 0.1
_LATE_ENOUGH_S = 0.002  # shorter waits cost more than they regulate


@dataclass(frozen=True, slots=True)
class Production:
    """A file to send, the topic, and how to send it.

    Args:
        key: the field whose value becomes the record's key, with dots for nested objects; None for no key.
        rate: largest number of records per second; None for as fast as the broker takes them.
        limit: the largest number of lines to send; None for all.
        compression: "gzip", or another that kafka-python has a package for; None: uncompressed.
        partitions: create the topic with this many partitions first; None if it exists.
        as_live: pace in log seconds per second; each event's time becomes the time at which it is sent.
        time_field, time_format: where an event's time is, and how it is written.
        security: authentication settings, with librdkafka's names. SECRET.
    """

    file: Path
    topic: str
    bootstrap_servers: str
    key: str | None = None
    rate: float | None = None
    limit: int | None = None
    compression: str | None = None
    partitions: int | None = None
    as_live: float | None = None
    time_field: str | None = None
    time_format: TimeFormat = "iso8601"
    security: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def cluster(self) -> Cluster:
        """The cluster of the topic."""
        return Cluster(self.bootstrap_servers, self.security)

    @property
    def is_csv(self) -> bool:
        """Whether the file is CSV, by its name; otherwise it is NDJSON."""
        return format_of(self.file) == "csv"


@dataclass(slots=True)
class Tally:
    """Progress: ``acknowledged`` records are on all replicas, ``undecodable`` ones are no events."""

    sent: int = 0
    acknowledged: int = 0
    undecodable: int = 0
    failed: str | None = None

    def on_sent(self, _record: object) -> None:
        """Count an acknowledged record."""
        self.acknowledged += 1

    def on_failure(self, failure: Exception) -> None:
        """Record why a record failed."""
        self.failed = type(failure).__name__


def produce(what: Production, console: Console | None = None) -> Tally:
    """Send every line of the file in order; return how many are on the brokers.

    Ctrl-C ends it early, after the records sent so far are acknowledged. Progress is not stored, so another
    start sends everything again. A file of which nothing could be counted is refused, and nothing is sent.

    Raises: OperatorError for a file, a topic or an option that cannot be used, and if Kafka refuses.
    Cost: about 20,000 records a second (one Python thread).
    """
    console = console or Console()
    tally, began_s = Tally(), time.monotonic()
    behind = Behind(partial(click.echo, err=True))
    with _opened(what) as content, _one_line(what):
        _find_topic(what)
        producer = _producer(what)
        try:
            with suppress(KeyboardInterrupt), _bar(what, content, console, tally) as show:
                _send(what, _lines(what, content), producer, tally, behind, show)
        finally:
            producer.flush()
            producer.close()
    if tally.failed or tally.acknowledged < tally.sent:
        raise OperatorError(
            f"produce: {tally.acknowledged:,} of {tally.sent:,} records reached topic {what.topic} "
            f"({tally.failed or 'no answer'}); look at the broker, then send the rest"
        )
    if tally.undecodable and tally.undecodable == tally.sent:
        raise OperatorError(
            f"produce: none of the {tally.sent:,} records that are now in topic {what.topic} is "
            f"{_EVENT[what.is_csv]}, so none can be counted; correct {what.file}"
        )
    seconds = max(time.monotonic() - began_s, 1e-3)
    sent = f"{tally.acknowledged:,} records of {what.file.name} are in topic {what.topic}"
    console.print(f"{sent} ({tally.acknowledged / seconds:,.0f} per second)", highlight=False, soft_wrap=True)
    if tally.undecodable:
        console.print(
            f"{tally.undecodable:,} of them are not {_EVENT[what.is_csv]}; counting refuses them",
            soft_wrap=True,
        )
    return tally


def _opened(what: Production) -> IO[bytes]:
    """Return the content of the file, decompressed.

    Raises: OperatorError if it cannot be read, or its first lines show that nothing of it can be counted.
    """
    try:
        if not what.file.is_file():
            how = "is no file" if what.file.exists() else "does not exist"
            raise OperatorError(f"produce: {what.file} {how}; name a file with one event per line")
        if what.limit != 0 and (why := _why_no_events(what)):
            raise OperatorError(f"produce: {what.file}: {why}")
        return decompressed(what.file) if what.file.suffix == GZIP else what.file.open("rb")
    except OSError as failure:
        raise OperatorError(f"produce: {what.file}: cannot be read: {failure.strerror}") from None


def _why_no_events(what: Production) -> str | None:
    start = start_of(what.file)
    if why := why_no_lines(start):
        return why
    if not (lines := lines_in(start)):
        return None  # the first line is long
    if not what.is_csv:
        return (
            None
            if has_objects(lines)
            else (
                "none of its first lines is a JSON object; write one object per line (CSV has a name in .csv)"
            )
        )
    if why := why_no_header(lines[0]):
        return why
    return None if len(lines) > 1 else "it has a header line and no event; there is nothing to send"


def _event_check(what: Production) -> Callable[[bytes], bool]:
    """Return a function that tells whether a record can be decoded."""
    if not what.is_csv:
        return is_object
    width = len(_header(what))
    return lambda record: len(csv_values(record) or ()) == width


def _header(what: Production) -> list[str]:
    """Return the names of the columns of a CSV file."""
    return csv_names(next(iter(lines_in(start_of(what.file))), b""))


def _send(
    what: Production,
    lines: Iterator[bytes],
    producer: KafkaProducer,
    tally: Tally,
    behind: Behind,
    show: Callable[[int], None],
) -> None:
    pace, read = _pace(what.rate, behind), 0
    moved = LiveTimes(what, behind=behind) if what.as_live is not None else None
    key_of, is_event = key_reader(what), _event_check(what)
    for line in islice(lines, what.limit):
        read += len(line)
        record = line.rstrip(b"\r\n")
        if not record:
            continue
        key = key_of(record)
        tally.undecodable += not is_event(record)
        if moved is not None:
            record = moved.move(record)
        pace()
        sent = producer.send(what.topic, record, key)
        sent.add_callback(tally.on_sent)
        sent.add_errback(tally.on_failure)
        tally.sent += 1
        if tally.failed:
            return
        show(read)


class LiveTimes:
    """Moves the times of past events to now: the first is sent at once, the others at the given pace.

    ``move`` waits until an event's moved time has come. An event that follows a later one in the file is sent
    at once with its own, earlier time, so it stays late.

    Args: wall_s, the clock in seconds since 1970; sleep, the function that waits; behind, which is notified
        of how late the newest event so far is sent.
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
        self._path = what.time_field.split(".")
        self._wall_s = wall_s
        self._sleep = sleep
        self._behind = behind
        self._newest_s = -math.inf
        self._first: tuple[int, float] | None = None

    def move(self, record: bytes) -> bytes:
        """Wait for the event's moved time, then return the event with that time."""
        event = _parsed(record)
        within, last = _holder(event, self._path), self._path[-1]
        then_us = None if within is None else self._read(within[last])
        if within is None or then_us is None:
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
        within[last] = self._written(at_s)
        return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()

    def _read(self, value: Any) -> int | None:
        kinds = (str,) if self._what.time_format == "iso8601" else (int, float)
        if type(value) not in kinds:
            return None
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


def _holder(event: Any, path: list[str]) -> dict[str, Any] | None:
    """Return the nested object that holds the last part of a path, or None."""
    for part in path[:-1]:
        event = event.get(part) if isinstance(event, dict) else None
    return event if isinstance(event, dict) and path[-1] in event else None


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
    path = what.key.split(".")
    return lambda record: _json_field(record, path)


def _csv_field(record: bytes, column: int) -> bytes | None:
    try:
        fields = next(csv.reader([record.decode(errors="replace")]), [])
    except csv.Error:  # a field longer than the reader takes
        return None
    return fields[column].encode() if column < len(fields) else None


def _json_field(record: bytes, path: list[str]) -> bytes | None:
    within = _holder(_parsed(record), path)
    value = None if within is None else within[path[-1]]
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _lines(what: Production, content: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines that hold events, without the header of a CSV file."""
    first = next((line for line in content if line.strip()), b"")
    if not what.is_csv:
        yield first.removeprefix(BOM_UTF8)  # the mark is the file's, not the event's
    yield from content


def _pace(rate: float | None, behind: Behind) -> Callable[[], None]:
    """Return a function that waits before each record, so that at most ``rate`` are sent per second."""
    if rate is None:
        return lambda: None
    began_s, sent = time.monotonic(), 0

    def wait() -> None:
        nonlocal sent
        ahead_s = began_s + sent / rate - time.monotonic()
        behind.by(-ahead_s, f"--rate {rate:g}")
        if ahead_s > _LATE_ENOUGH_S:
            time.sleep(ahead_s)
        sent += 1

    return wait


def _producer(what: Production) -> KafkaProducer:
    if what.compression is not None and not getattr(codec, f"has_{what.compression}")():
        raise OperatorError(
            f"produce: --compression {what.compression}: kafka-python has no package for it here; take gzip"
        )
    return KafkaProducer(
        **what.cluster.blocking_client(),
        acks="all",
        enable_idempotence=True,
        compression_type=what.compression,
        allow_auto_create_topics=False,
        linger_ms=20,
        batch_size=1 << 17,
        max_block_ms=15_000,
        bootstrap_timeout_ms=10_000,
    )


def _find_topic(what: Production) -> None:
    """Create the topic if requested; otherwise check that it exists."""
    asyncio.run(reach(what.cluster))
    admin = KafkaAdminClient(**what.cluster.blocking_client(), bootstrap_timeout_ms=5_000)
    try:
        if what.partitions is not None:
            with suppress(TopicAlreadyExistsError):
                admin.create_topics([NewTopic(what.topic, what.partitions, -1)])
        elif what.topic not in admin.list_topics():
            raise OperatorError(f"produce: topic {what.topic} does not exist; create it with --partitions")
    finally:
        admin.close()


@contextmanager
def _one_line(what: Production) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as failure:
        said = str(failure).partition("\n")[0] or type(failure).__name__
        raise OperatorError(
            f"produce: topic {what.topic} on {what.bootstrap_servers}: {said}; `make kafka` starts a broker, "
            "--bootstrap-servers names another"
        ) from None


@contextmanager
def _bar(
    what: Production, content: IO[bytes], console: Console, tally: Tally
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal. Yield a function that takes the number of bytes read."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TextColumn("{task.fields[sent]:,} sent"),
        TimeRemainingColumn(),
    )
    length = os.fstat(content.fileno()).st_size
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(f"{what.file.name} ▶ {what.topic}", total=length, sent=0)
        shown_s = 0.0

        def show(read: int) -> None:
            nonlocal shown_s
            if time.monotonic() - shown_s > _SHOW_EVERY_S:
                shown_s = time.monotonic()
                progress.update(bar, completed=read, sent=tally.sent)

        yield show
        progress.update(bar, completed=length, sent=tally.sent)
