"""Findings about a sample of a stream's events: for the operator only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dphist.arrays import Int64Array
from stream_app.config import SourceSettings, StreamSettings, TopicSettings
from stream_app.core.incoming import Reason, RecordBatch, Refusal, refused_because
from stream_app.shell.samples.fields import cap_findings, field_findings, filling_findings
from stream_app.shell.samples.times import arrivals_in_file, first_findings, grace_findings, time_findings
from stream_app.sources.decode import TimeField
from stream_app.sources.finished_files import open_sample
from stream_app.sources.lines import LINE_END, MOST_BYTES
from stream_app.sources.shapes import why_undecodable
from stream_app.sources.times import TimeFormat
from stream_app.wiring.checks import Finding
from stream_app.wiring.event_logs import file_format, other_fields, time_field

EXACT = "What is said here about events is exact and private: for the operator only, publish none of it."
_FEW = 0.05  # of a sample
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class StreamSample:
    """Events of a stream's log, as the service reads them."""

    columns: Mapping[str, Any]  # n values of each field
    refused: Sequence[Refusal]  # the events that cannot be decoded
    arrived_us: Int64Array  # about when each event arrived, shape (n,)
    newest_us: Int64Array  # the times of the newest events
    read: Callable[[TimeFormat], Int64Array] | None  # the times in another format; None if a schema has it

    @property
    def kept(self) -> int:
        """How many events can be decoded."""
        return len(self.arrived_us)


def read_sample(
    stream: StreamSettings, time_format: TimeFormat | None = None, *, newest: bool = False
) -> RecordBatch | None:
    """Return the first or newest records of a stream's files; None without any, or for another log."""
    if not isinstance(stream.source, SourceSettings):
        return None
    file, others = stream.source.file, other_fields([stream])
    time = time_field(stream)
    time = TimeField(time.path, time_format or time.format, time.zone)
    replayed = stream.declared.source.replay is not None
    with open_sample(file, file_format(stream), time, others, replayed, newest=newest) as lines:
        start, size = lines.first_position, lines.stat().st_size
        end = lines.after_last_line(start)
        if newest and end - start > MOST_BYTES:
            start = end - MOST_BYTES
            start += lines.bytes_at(start, MOST_BYTES).find(LINE_END) + 1
        found = lines.read(start, end) if newest else lines.first_records()
        if found is None and replayed and size > start:
            return lines.unfinished_line(start, size)  # the only one
        return found


def sample_of_file(stream: StreamSettings) -> StreamSample | None:
    """Return a sample of a stream's file; None if it has no event yet. Raises: OperatorError."""
    if (batch := read_sample(stream)) is None:
        return None
    path = stream.declared.time.field

    def times_us(batch: RecordBatch | None) -> Int64Array:
        return np.empty(0, np.int64) if batch is None else np.asarray(batch.columns[path], np.int64)

    arrived_us, newest_us = arrivals_in_file(times_us(batch)), times_us(read_sample(stream, newest=True))
    return StreamSample(
        batch.columns,
        batch.refused,
        arrived_us,
        newest_us,
        lambda other: times_us(read_sample(stream, other)),
    )


def findings(stream: StreamSettings, sample: StreamSample) -> Iterator[Finding]:
    """Yield findings about a sample: whether events and times are read as meant, and how many count."""
    events = sample.kept + len(sample.refused)
    misread = [] if sample.read is None else list(time_findings(stream, events, sample.read))
    if not any(finding.state == "fail" for finding in misread):
        yield decoding_finding(stream, sample)
    yield from misread
    yield from cap_findings(stream, sample.columns)
    yield from field_findings(stream, sample.columns, sample.kept)
    times_us = np.asarray(sample.columns[stream.declared.time.field], np.int64)
    yield from grace_findings(stream, times_us, sample.arrived_us)
    yield from filling_findings(stream, sample.columns)
    yield from first_findings(stream, sample.newest_us)


def decoding_finding(stream: StreamSettings, sample: StreamSample) -> Finding:
    """Return whether events can be decoded, in words only, because numbers would count people's events."""
    time, refused = stream.declared.time, sample.refused
    what = f"streams.{stream.name}.source.{'topic' if isinstance(stream.source, TopicSettings) else 'file'}"
    reasons = Counter(one.reason for one in refused)
    undecodable = [one.record for one in refused if one.reason == Reason.UNDECODABLE]
    is_csv = stream.declared.source.format == "csv"
    cause = next(filter(None, (why_undecodable(record, is_csv) for record in undecodable)), None)
    why = "; ".join(
        f"{reason}: {cause}" if cause and reason == Reason.UNDECODABLE else refused_because(reason)
        for reason, _ in reasons.most_common()
    )
    if refused and not sample.kept:
        said = f"no event of a sample has a time in {time.field} ({time.format}): {why}"
        if set(reasons) == {Reason.MISSING_FIELD}:
            said = (
                f"no event of a sample has the field {time.field}{_instead(refused[0])}; correct time.field"
            )
        return Finding(what, "fail", said)
    if refused:
        few = len(refused) <= _FEW * sample.kept
        said = "cannot be decoded and become dead letters when the service runs"
        if few and not cause and set(reasons) == {Reason.UNDECODABLE}:
            why = "their lines are damaged; the format is right"
        return Finding(
            what,
            "warn",
            f"{f'less than {_FEW:.0%} of the' if few else 'some'} events of a sample {said}: {why}",
        )
    return Finding(what, "ok", "every event of a sample can be decoded")


def _instead(refusal: Refusal) -> str:
    """Return which fields a record of JSON has, in words."""
    try:
        names = list(json.loads(refusal.record))
    except ValueError:
        return ""
    return f"; it has {', '.join(names[:_MOST_NAMES])}{', ...' if len(names) > _MOST_NAMES else ''}"
