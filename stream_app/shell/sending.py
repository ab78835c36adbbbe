"""Sends the lines of a file to a Kafka topic."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import IO

import click
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from stream_app.kafka.cluster import reach
from stream_app.ports import OperatorError
from stream_app.shell.pace import Behind
from stream_app.shell.produce import (
    LiveTimes,
    Production,
    event_check,
    key_reader,
    lines_of,
    opened,
)

_EVENT = {False: "a JSON object", True: "a line of CSV with a value for each column"}
_SHOW_EVERY_S = 0.1


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


def send(what: Production, console: Console | None = None) -> Tally:
    """Send every line of the file in order; return how many are on the brokers.

    Ctrl-C ends it early, after the records sent so far are acknowledged. Progress is not stored, so another
    start sends everything again. A file of which nothing could be counted is refused, and nothing is sent.

    Raises: OperatorError for a file, a topic or an option that cannot be used, and if Kafka refuses.
    Cost: about 20,000 records a second (one Python thread).
    """
    console = console or Console()
    tally, began_s = Tally(), time.monotonic()
    behind = Behind(partial(click.echo, err=True))
    with opened(what) as content, _one_line(what):
        _find_topic(what)
        producer = _producer(what)
        try:
            with suppress(KeyboardInterrupt), _bar(what, content, console, tally) as show:
                _send(what, lines_of(what, content), producer, tally, behind, show)
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


def _send(
    what: Production,
    lines: Iterator[bytes],
    producer: KafkaProducer,
    tally: Tally,
    behind: Behind,
    show: Callable[[int], None],
) -> None:
    read = 0
    moved = LiveTimes(what, behind=behind) if what.as_live is not None else None
    key_of, is_event = key_reader(what), event_check(what)
    for line in islice(lines, what.limit):
        read += len(line)
        record = line.rstrip(b"\r\n")
        if not record:
            continue
        key = key_of(record)
        tally.undecodable += not is_event(record)
        if moved is not None:
            record = moved.move(record)
        sent = producer.send(what.topic, record, key)
        sent.add_callback(tally.on_sent)
        sent.add_errback(tally.on_failure)
        tally.sent += 1
        if tally.failed:
            return
        show(read)


def _producer(what: Production) -> KafkaProducer:
    return KafkaProducer(
        **what.cluster.blocking_client(),
        acks="all",
        enable_idempotence=True,
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
