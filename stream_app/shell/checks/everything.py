"""All checks of a configuration: ``stream-app doctor`` asks all of them, and check-config most."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.config.access import field_warnings
from stream_app.config.alerts import cap_warning, format_warnings
from stream_app.config.settings import IngestSettings
from stream_app.config.source import by_source
from stream_app.core.json_objects import bare
from stream_app.ports import OperatorError
from stream_app.shell.checks.free_space import LEAST_FREE_BYTES, MIB, free_space
from stream_app.shell.checks.ports import port_findings
from stream_app.shell.checks.redis import redis_findings
from stream_app.shell.checks.stored import Compared, check_stored
from stream_app.shell.planning.promises import cost_until_now
from stream_app.shell.present_step import Step, silent
from stream_app.shell.samples.findings import findings, sample_of_file
from stream_app.sources.copies import first_records
from stream_app.sources.file_list import files_of, is_list, misplaced
from stream_app.sources.shapes import why_no_lines
from stream_app.sources.starts import start_of
from stream_app.spool import bytes_kept
from stream_app.wiring.checks import Check, Finding, Reach, checks_of_logs, checks_of_machine

_MOST_FILES = 100  # of a list, whose first bytes are read


async def examine(settings: Settings, step: Step = silent) -> list[Finding]:
    """Return a finding for each file, directory, address and service of a configuration."""
    found = list[Finding]()
    for check in all_checks(settings):
        step(f"checking {check.key}")
        found += await check.found()
    return found


def all_checks(settings: Settings) -> Iterator[Check]:
    """Yield every check of a configuration, the checks with the nearest reach first."""
    streams = {f"streams.{stream.name}.source.file": stream for stream in settings.streams}
    for check in checks_of_logs(settings):
        stream = streams.get(check.key)
        yield check if stream is None else replace(check, ask=partial(_both, check, stream))
    yield Check("time.first", Reach.FILE, partial(_costs, settings))
    yield Check("privacy.total", Reach.FILE, partial(_totals, settings.streams))
    yield Check("alerts", Reach.FILE, partial(_alerts, settings))
    yield Check("ingest", Reach.FILE, partial(_received, settings))
    yield from checks_of_machine(settings)
    yield Check("free space", Reach.MACHINE, partial(_room, settings), ends=False)
    # The service that serves a port may be the one that this configuration is to follow.
    yield Check("ports", Reach.MACHINE, partial(port_findings, settings), ends=False)
    yield Check("redis.url", Reach.STORE, partial(redis_findings, settings), ends=False)
    compared = list[Compared]()

    async def stored() -> list[Finding]:
        compared.append(await check_stored(settings))
        return compared[0].findings()

    async def halted() -> Sequence[Finding]:
        return compared[0].halted if compared else ()

    yield Check("streams", Reach.STORE, stored)
    yield Check("streams", Reach.STORE, halted, ends=False)
    if settings.kafka is not None:
        from stream_app.shell.checks.kafka import kafka_findings  # its packages may not be installed

        async def clusters() -> list[Finding]:
            return await kafka_findings(settings, compared[0].counted if compared else {})

        yield Check("kafka", Reach.CLUSTER, clusters, ends=False)


def _both(check: Check, stream: StreamSettings) -> Iterator[Finding]:
    """Yield the findings of a start about a file; if the start would accept it, also those of a sample."""
    asked = check.ask()
    assert isinstance(asked, Iterable)
    yield from asked
    yield from contents(stream)


def _costs(settings: Settings) -> Iterator[Finding]:
    """Yield a warning for each stream whose past has several epochs that add up."""
    for stream in settings.streams:
        if said := cost_until_now(stream, time.time_ns() // 1_000):
            yield Finding(f"streams.{stream.name}.time.first", "warn", said)


def _alerts(settings: Settings) -> Iterator[Finding]:
    """Warn of each rule that caps may fire, and each address whose service expects another format."""
    streams = {stream.name: stream for stream in settings.streams}
    rules = {rule.written or rule.name: rule for rule in settings.alerts.rules}
    for name, rule in rules.items():
        if said := cap_warning(rule, streams[rule.condition.stream]):
            yield Finding(f"alerts.rules.{name}", "warn", said)
    yield from map(_warned, format_warnings(settings.alerts))


def _received(settings: Settings) -> Iterator[Finding]:
    """Warn of each field that no event has which arrives over HTTP."""
    if (ingest := settings.ingest) is not None:
        for stream in settings.streams:
            yield from map(_warned, field_warnings(ingest, stream))


def _warned(line: str) -> Finding:
    key, _, said = line.partition(": ")
    return Finding(key, "warn", said)


def _room(settings: Settings) -> Iterator[Finding]:
    """Yield whether the disks of all directories have room."""
    ingest = settings.ingest
    directories = {"state.dir": settings.state_dir, "redis.url": settings.redis.embedded}
    directories["ingest.dir"] = None if ingest is None else ingest.directory
    for what, directory in directories.items():
        if directory is not None:
            yield free_space(what, _nearest(directory))
    if ingest is not None:
        yield _room_for_spools(settings, ingest)


def _nearest(directory: Path) -> Path:
    return next(above for above in (directory, *directory.parents) if above.exists())


def contents(stream: StreamSettings) -> Iterator[Finding]:
    """Yield whether the first events of a file can be decoded and counted."""
    assert isinstance(stream.source, SourceSettings)
    what, file = f"streams.{stream.name}.source.file", stream.source.file
    listed = is_list(file)
    files = list(files_of(file).values()) if listed else [file]
    if listed and stream.declared.source.replay is None:
        yield from _order_of_names(what, file)
    starts = {path: start_of(path) for path in files[:_MOST_FILES]}
    for path, start in starts.items():
        if bare(start).strip() and (why := why_no_lines(start)) is not None:
            yield Finding(what, "fail", f"{path}: {why}")
            return
    is_csv = stream.declared.source.format == "csv"
    if not any(bare(first_records(path, is_csv)).strip() for path in files):
        if stream.declared.source.replay is not None:
            how = "it is empty" if all(path.stat().st_size == 0 for path in files) else "it has no event"
            yield Finding(what, "fail", f"{file}: {how}, so a replay counts nothing; correct the path")
        return
    try:
        sample = sample_of_file(stream)
    except OperatorError as refusal:
        yield Finding(f"streams.{stream.name}.source.format", "fail", str(refusal))
        return
    if sample is not None:
        yield from findings(stream, sample)
    else:
        said = (
            "it has no line end so far, and an event counts once its line has one; write one event per line"
        )
        yield Finding(what, "warn", f"{file}: {said}")


def _order_of_names(what: str, pattern: Path) -> Iterator[Finding]:
    """Yield a warning if a list is read in another order than its names' numbers say."""
    if found := misplaced(pattern, files_of(pattern)):
        first, second = found
        remedy = "write all numbers with the same length, as in 09 and 10"
        yield Finding(what, "warn", f"{first} is read before {second}, by the letters of the names; {remedy}")


def _room_for_spools(settings: Settings, ingest: IngestSettings) -> Finding:
    """Return whether every spool can reach its largest size: a full disk stops more than a full spool."""
    present = [directory for directory in settings.spools.values() if directory.is_dir()]
    missing = ingest.most_bytes * len(settings.spools) - sum(map(bytes_kept, present))
    free = shutil.disk_usage(_nearest(ingest.directory)).free
    said = f"its spools may take another {max(missing, 0) // MIB:,} MiB, and {free // MIB:,} MiB are free"
    if free - missing < LEAST_FREE_BYTES:
        return Finding("ingest.max_size", "warn", f"{said}; lower it, or make room")
    return Finding("ingest.max_size", "ok", said)


def _totals(streams: Sequence[StreamSettings]) -> Iterator[Finding]:
    """Yield a warning for each stream that may take its source beyond the total of another stream."""
    groups = by_source(streams)  # several names may mean the same events
    for source, together in {id(group): (source, group) for source, group in groups.items()}.values():
        limited = [one for one in together if one.total and one.total.per == "source"]
        if not limited:
            continue
        first, total = limited[0], limited[0].total
        assert total is not None
        for stream in together:
            if stream.total == total:
                continue
            has = "is missing" if stream.total is None else f"is another one ({stream.total.words})"
            said = (
                f"{has}: {first.name} keeps to {total.words}, and {stream.name} may take {source} beyond it; "
                "give both the same total"
            )
            yield Finding(f"streams.{stream.name}.privacy.total", "warn", said)
