"""``stream-app doctor``: check everything that a configuration needs, without changing anything."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from dphist.arrays import Int64Array
from stream_app.config import ConfigError, Settings, SourceSettings, StreamSettings
from stream_app.config.alerts import format_warnings
from stream_app.config.second_measurement import check_measurements
from stream_app.config.settings import IngestSettings, OutputSettings
from stream_app.core.incoming import RecordBatch
from stream_app.ports import OperatorError
from stream_app.shell.capped import file_sample
from stream_app.shell.doctor.fields import field_findings
from stream_app.shell.doctor.findings import Finding, capped, filling, sampled
from stream_app.shell.doctor.grace import arrivals_in_file, grace_findings
from stream_app.shell.doctor.ports import port_findings
from stream_app.shell.doctor.redis import key_file_findings, redis_findings
from stream_app.shell.doctor.room import LEAST_FREE_BYTES, MIB, free_space
from stream_app.shell.doctor.stored import check_stored
from stream_app.shell.doctor.times import time_findings
from stream_app.shell.planning.promises import cost_until_now
from stream_app.shell.working import Step, silent
from stream_app.sources.file_list import files_of, is_list, misplaced
from stream_app.sources.times import TimeFormat
from stream_app.spool import bytes_kept
from stream_app.wiring.event_logs import time_field, why_unreadable
from stream_app.wiring.storage import outside_ledger


async def examine(settings: Settings, step: Step = silent) -> list[Finding]:
    """Return a finding for each file, directory, address and service of a configuration.

    Args: step, which is called with what is done next.
    """
    findings: list[Finding] = []
    for stream in settings.streams:
        if isinstance(stream.source, SourceSettings) and stream.source.keep_us is None:
            step(f"reading a sample of {stream.source.file.name}")
            findings += _file(stream, stream.source.file)
    findings += _costs(settings)
    findings += _directory("state.dir", settings.state_dir)
    if settings.ingest is not None:
        findings += _directory("ingest.dir", settings.ingest.directory)
        findings.append(_room_for_spools(settings, settings.ingest))
    if settings.redis.embedded is not None:
        findings += _directory("redis.url", settings.redis.embedded)
    findings += _measurements(settings)
    findings += key_file_findings(settings)
    findings += [Finding("alerts", "warn", line) for line in format_warnings(settings.alerts)]
    step("asking the ledger")
    findings += await _ledger(settings)
    step("looking at ports, and asking Redis")
    findings += port_findings(settings)
    findings += await redis_findings(settings)
    stored, outputs = await _stored(settings)
    findings += stored
    if settings.kafka is not None:
        from stream_app.shell.doctor.kafka import kafka_findings  # its packages may not be installed

        step("asking Kafka and reading a sample of each topic")
        findings += await kafka_findings(replace(settings, outputs=outputs))
    return findings


async def _stored(settings: Settings) -> tuple[list[Finding], tuple[OutputSettings, ...]]:
    """Return what the store says of the streams, and the output topics of all their generations."""
    try:
        found = await check_stored(settings)
        changes = [Finding("streams", "ok", change) for change in found.changes]
        lacking = [Finding("streams", "warn", f"not checked: {one}") for one in found.not_compared]
        return [*changes, *lacking], settings.outputs if found.outputs is None else found.outputs
    except OperatorError as refusal:
        return [Finding("streams", "fail", str(refusal))], settings.outputs


def _measurements(settings: Settings) -> Iterator[Finding]:
    """Yield a finding if streams would measure the same events without the operator's consent."""
    try:
        check_measurements(settings.streams, time.time_ns() // 1_000)
    except ConfigError as refusal:
        yield Finding("streams", "fail", str(refusal))


def _costs(settings: Settings) -> Iterator[Finding]:
    """Yield a warning for each stream whose past has several epochs that add up."""
    for stream in settings.streams:
        if said := cost_until_now(stream, time.time_ns() // 1_000):
            yield Finding(f"streams.{stream.name}.time.first", "warn", said)


async def _ledger(settings: Settings) -> list[Finding]:
    """Return whether the ledger outside the store exists, if the configuration names one."""
    outside = outside_ledger(settings)
    if outside is None:
        return []
    try:
        entries = await outside.entries()
    except (OperatorError, OSError) as failure:
        return [Finding("ledger", "fail", str(failure))]
    return [Finding("ledger", "ok", f"{outside.name} holds {len(entries)} epoch(s)")]


def _file(stream: StreamSettings, file: Path) -> Iterator[Finding]:
    """Yield whether a file can be read, and whether its first events can be decoded."""
    what = f"streams.{stream.name}.source.file"
    if why := why_unreadable(file):
        yield Finding(what, "fail", why)
        return
    yield Finding(what, "ok", f"{file} can be read")
    if is_list(file) and stream.declared.source.replay is None:
        yield from _order_of_names(what, file)
    at = time_field(stream)
    try:
        batch = file_sample(stream)
    except OperatorError as refusal:
        yield Finding(f"streams.{stream.name}.source.format", "fail", str(refusal))
        return
    if batch is not None:
        wrong = list(file_times(stream, batch))
        if not any(finding.state == "fail" for finding in wrong):
            yield sampled(what, at.path, at.format, len(batch.positions), batch.refused)
        yield from wrong
        yield from capped(stream, batch.columns)
        yield from field_findings(stream, batch.columns, len(batch.positions))
        times_us = np.asarray(batch.columns[at.path])
        yield from grace_findings(stream, times_us, arrivals_in_file(times_us))
        yield from filling(stream, batch.columns)


def _order_of_names(what: str, pattern: Path) -> Iterator[Finding]:
    """Yield a warning if a list is read in another order than its names' numbers say."""
    if found := misplaced(pattern, files_of(pattern)):
        first, second = found
        remedy = "write all numbers with the same length, as in 09 and 10"
        yield Finding(what, "warn", f"{first} is read before {second}, by the letters of the names; {remedy}")


def file_times(stream: StreamSettings, batch: RecordBatch) -> Iterator[Finding]:
    """Yield what is wrong with the times of a file's sample. Args: batch, the sample."""
    path = stream.declared.time.field

    def read(format: TimeFormat) -> Int64Array:
        sample = file_sample(stream, format)
        return np.empty(0, np.int64) if sample is None else np.asarray(sample.columns[path], np.int64)

    yield from time_findings(stream, len(batch.positions) + len(batch.refused), read)


def _directory(what: str, directory: Path) -> Iterator[Finding]:
    """Yield whether a directory is writable, private to this user, and has free space."""
    nearest = directory
    while not nearest.exists():
        nearest = nearest.parent
    if not os.access(nearest, os.W_OK):
        yield Finding(what, "fail", f"{nearest} cannot be written; choose another directory")
        return
    if nearest == directory and directory.stat().st_mode & 0o077:
        yield Finding(what, "warn", f"{directory} holds secrets and others may enter it; chmod 700")
    else:
        yield Finding(what, "ok", f"{directory} can be written")
    yield free_space(what, nearest)


def _room_for_spools(settings: Settings, ingest: IngestSettings) -> Finding:
    """Return whether every spool can reach its largest size: a full disk stops more than a full spool."""
    present = [directory for directory in settings.spools.values() if directory.is_dir()]
    missing = ingest.most_bytes * len(settings.spools) - sum(map(bytes_kept, present))
    nearest = next(above for above in (ingest.directory, *ingest.directory.parents) if above.exists())
    free = shutil.disk_usage(nearest).free
    said = f"its spools may take another {max(missing, 0) // MIB:,} MiB, and {free // MIB:,} MiB are free"
    if free - missing < LEAST_FREE_BYTES:
        return Finding("ingest.max_size", "warn", f"{said}; lower it, or make room")
    return Finding("ingest.max_size", "ok", said)
