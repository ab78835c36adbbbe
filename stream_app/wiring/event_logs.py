"""Opens the log that streams read (a file, a replay of one, or a topic) and recognises it at later starts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from msgspec import structs

from stream_app.config import Settings, SourceSettings, StreamSettings, TopicSettings
from stream_app.config.source import real_place
from stream_app.core.counting.where import Condition
from stream_app.core.segments.names import key_of
from stream_app.core.strategy import Strategy
from stream_app.core.visits import VISITOR
from stream_app.durable import secret_directory, write_durably
from stream_app.loops.clocks import ReplayClock
from stream_app.ports import Clock, OperatorError, Source
from stream_app.ports.errors import about
from stream_app.sources.copies import check_copies
from stream_app.sources.decode import TimeField
from stream_app.sources.file import FileSource, check_first_bytes
from stream_app.sources.file_list import check_listed_file, files_of, is_list
from stream_app.sources.file_sequence import FileSequence
from stream_app.sources.finished_files import check_whole, open_start
from stream_app.sources.lines import EmptyFileError, FileFormat, OneFile, open_lines
from stream_app.sources.packed import is_packed
from stream_app.sources.replay import ReplaySource
from stream_app.sources.spool_log import SpoolSource
from stream_app.sources.topic_records import TopicDecoder, TopicFormat, topic_decoder
from stream_app.sources.web_log import WebLog, WebLogKind
from stream_app.stored_format import check_directory_format
from stream_app.together import each_to_its_end
from stream_app.vault.visitor_keys import VisitorKeys


def decoder_of(
    source: TopicSettings, streams: Sequence[StreamSettings], coming: Sequence[StreamSettings] = ()
) -> TopicDecoder:
    """Return the decoder of the topic that all of ``streams`` read. Args: coming, as ``open_source``.

    Raises: OperatorError, one line, for settings that no decoder fits.
    """
    log = streams[0].declared.source
    return topic_decoder(
        cast("TopicFormat", log.format),
        time_field(streams[0]),
        log.columns or (),
        other_fields([*streams, *coming]),
        source.schema_registry,
        source.schema_registry_ca,
    )


async def open_source(
    streams: Sequence[StreamSettings],
    settings: Settings,
    clock: Clock,
    coming: Sequence[StreamSettings] = (),
) -> Source:
    """Return the open log that all of ``streams`` read.

    Args: coming, segments that may join while it is open: it decodes their fields, too.
    Raises: OperatorError if it cannot be read, or is not the log that a stream has begun with.
    """
    first = streams[0]
    if isinstance(first.source, TopicSettings):
        from stream_app.sources.kafka import KafkaSource
        from stream_app.wiring.topics import cluster_of

        assert settings.kafka is not None  # the configuration was refused without it
        decoder = decoder_of(first.source, streams, coming)
        cluster = cluster_of(settings, first.source.cluster)
        names = settings.state_dir / "members" if settings.kafka.group_protocol == "consumer" else None
        return await KafkaSource.open(cluster, first.source.topic, settings.kafka.group, decoder, names)
    check_files([first])
    # In threads, so that the file system joins the syncs of many streams' notes.
    await each_to_its_end(*(asyncio.to_thread(check_file, one, settings.state_dir) for one in streams))
    return await asyncio.to_thread(_open_file, [*streams, *coming], first.source, settings.state_dir, clock)


def named_by(source: Source, strategy: Strategy, state_dir: Path) -> Strategy:
    """Return the strategy with its log's identity declared, so that it is refused for another log.

    A topic is identified by its cluster and id; a recreated topic has a new id. A file is identified by the
    state directory, which records how far it was read: for two workers, the same path may be two files.
    """
    if isinstance(source, OneFile):
        return _of_log(strategy, state_id=_id_of(state_dir))
    from stream_app.sources.kafka import KafkaSource

    assert isinstance(source, KafkaSource)
    return _of_log(strategy, cluster_id=source.facts.cluster_id, topic_id=source.facts.topic_id)


def check_one_source(strategies: Sequence[Strategy]) -> None:
    """Check that each topic is read as one source: nobody would add up the costs of two.

    Raises: OperatorError if the addresses of two clusters in ``kafka.clusters`` lead to one cluster.
    """
    sources: dict[str, str] = {}
    for strategy in strategies:
        log = strategy.declared.source
        if log.topic_id is not None and sources.setdefault(log.topic_id, log.name) != log.name:
            raise OperatorError(
                f"stream {strategy.stream}: its topic {log.topic} is read as {sources[log.topic_id]} too, so "
                "their costs would not be added up; name its cluster in one way, or write one source.group"
            )


async def named_as_begun(stream: StreamSettings, strategy: Strategy, settings: Settings) -> Strategy:
    """Return the strategy with its log's identity declared, without opening the log.

    Raises: OperatorError for a topic that does not exist.
    """
    if not isinstance(stream.source, TopicSettings):
        return _of_log(strategy, state_id=_id_of(settings.state_dir))
    from stream_app.kafka.topics import topic_facts
    from stream_app.wiring.topics import cluster_of

    facts = await topic_facts(cluster_of(settings, stream.source.cluster), stream.source.topic)
    if facts is None:
        raise OperatorError(f"{key_of(stream.name, 'source.topic')}: {stream.source.topic} is not there")
    return _of_log(strategy, cluster_id=facts.cluster_id, topic_id=facts.topic_id)


def named_alike(strategy: Strategy, named: Strategy) -> Strategy:
    """Return the strategy with its log's identity declared. Args: named, of another stream over this log."""
    log = named.declared.source
    return _of_log(strategy, state_id=log.state_id, cluster_id=log.cluster_id, topic_id=log.topic_id)


def _of_log(strategy: Strategy, **place: str | None) -> Strategy:
    log = structs.replace(strategy.declared.source, **place)
    return replace(strategy, declared=structs.replace(strategy.declared, source=log))


def _id_of(state_dir: Path) -> str:
    """Return the id of a state directory, which stays the same if the directory is moved."""
    if (known := id_of_state(state_dir)) is not None:
        return known
    write_durably(state_dir / "id", [secrets.token_hex(8).encode()])
    return _id_of(state_dir)


def id_of_state(state_dir: Path) -> str | None:
    """Return the id of a state directory; None if it has none yet."""
    note = state_dir / "id"
    return note.read_text().strip() if note.exists() else None


def check_files(streams: Sequence[StreamSettings]) -> None:
    """Check that the log of a stream can be read, before anything is started.

    Raises: OperatorError, one line, if no stream has a log that can be read.
    """
    refused = list[str]()
    for stream in streams:
        source = stream.source
        if not isinstance(source, SourceSettings) or source.keep_us is not None:
            return  # a spool appears with its first event
        if (why := why_unreadable(source.file)) is None:
            return
        refused.append(f"{key_of(stream.name, 'source.file')}: {why}")
    if refused:
        raise OperatorError("; ".join(refused))


def check_log(stream: StreamSettings, source: SourceSettings, state_dir: Path) -> int:
    """Check a file or a list as a start does when it opens it; change nothing.

    Returns: how many bytes of compressed files were not read, because that would take long.
    Raises: OperatorError, one line that begins with the key.
    """
    check_files([stream])
    time, form, others = time_field(stream), file_format(stream), other_fields([stream])
    notes = _notes_of(stream, source, state_dir)
    try:
        if stream.declared.source.replay is not None:
            return check_whole(source.file, form, time, others)
        if not is_list(source.file):
            with open_lines(source.file, form, time, others) as lines:
                check_first_bytes(source.file, lines, notes)
            return 0
        files = files_of(source.file)
        has_begun = note_of(stream.name, state_dir).exists()
        if not has_begun:
            check_copies(list(files.values()), form == "csv")
        # The others were opened when they were counted.
        for name, file in list(files.items())[-1:] if has_begun else files.items():
            with (
                suppress(EmptyFileError),  # it has no records, or its writer has only just begun it
                open_start(file, form, time, others) as lines,
            ):
                if not is_packed(file):  # a start opens a compressed file only if it is not yet counted
                    check_listed_file(file, name, lines, notes)
    except OperatorError as refusal:
        raise OperatorError(f"{key_of(stream.name, 'source.file')}: {refusal}") from None
    except OSError as failure:  # of a note in a directory of another user, for example
        why = f"{failure.filename} cannot be read ({failure.strerror}); let this user read it"
        raise OperatorError(f"{key_of(stream.name, 'source.file')}: {why}") from None
    return 0


def why_unreadable(file: Path) -> str | None:
    """Return why a file of events, or a list of files, cannot be read, with the remedy; None if it can."""
    if is_list(file):
        return _why_unreadable_list(file)
    try:
        if file.is_dir():
            return f"{file} is a directory; name its files, for example '{file}/*.csv'"
        if not file.is_file():
            return f"{file} is {'no file' if file.exists() else 'not there'}; create it or correct the path"
    except OSError as failure:  # a directory above it is closed, for example
        return f"{file} cannot be read ({failure.strerror}); let this user read it"
    return _why_closed(file)


def _why_unreadable_list(pattern: Path) -> str | None:
    try:
        files = files_of(pattern)
    except OSError as failure:
        return f"{pattern.parent} cannot be read ({failure.strerror}); create it or correct the path"
    except OperatorError as refusal:
        return str(refusal)
    if not files:
        return f"{pattern} names no file; create the first one or correct the path"
    return next(filter(None, map(_why_closed, files.values())), None)


def _why_closed(file: Path) -> str | None:
    return None if os.access(file, os.R_OK) else f"{file} cannot be read; let this user read it"


def check_file(stream: StreamSettings, state_dir: Path) -> None:
    """Check that a stream still reads the file that it began with: else events could count a second time.

    Raises: OperatorError, one line.
    """
    note = note_of(stream.name, state_dir)
    if note.exists():
        with about(stream.name):
            check_begun_file(stream, state_dir)
    else:
        write_durably(note, [_note(stream, state_dir)])


def check_begun_file(stream: StreamSettings, state_dir: Path) -> None:
    """Check the file of a stream that has begun, and change nothing. Raises: OperatorError, one line."""
    note = note_of(stream.name, state_dir)
    if note.exists() and note.read_bytes() != _note(stream, state_dir):
        assert isinstance(stream.source, SourceSettings)
        raise OperatorError(
            f"{key_of(stream.name, 'source.file')}: {stream.source.file} is not the file that the "
            "stream began with, or its time.field or format changed, so that it is read in another way; put "
            "that back, or give the new stream another name"
        )


def _note(stream: StreamSettings, state_dir: Path) -> bytes:
    assert isinstance(stream.source, SourceSettings)
    return json.dumps({"reading": _reading(stream, stream.source, state_dir)}).encode()


def note_of(stream: str, state_dir: Path) -> Path:
    """Return where the state directory notes which file a stream reads."""
    return state_dir / "streams" / f"{stream}.json"


def _open_file(
    streams: Sequence[StreamSettings], source: SourceSettings, state_dir: Path, clock: Clock
) -> Source:
    """Open a file or a list of files; a separate directory holds the source's notes about it."""
    stream, others = streams[0], other_fields(streams)
    form = file_format(stream, visitor_keys(stream, state_dir))
    if isinstance(form, WebLog):
        form = replace(form, counted=conditions_of(streams))
    directory = secret_directory(_notes_of(stream, source, state_dir))
    time = time_field(stream)
    if source.keep_us is not None:
        check_directory_format("ingest.dir", source.file)
        return SpoolSource(source.file, time, directory, others)
    if isinstance(clock, ReplayClock):
        return ReplaySource(source.file, form, time, directory, clock.reached_us, others)
    follow = FileSequence if is_list(source.file) or isinstance(form, WebLog) else FileSource
    return follow(source.file, form, time, directory, others)


def _notes_of(stream: StreamSettings, source: SourceSettings, state_dir: Path) -> Path:
    return state_dir / "sources" / _reading(stream, source, state_dir)


def file_format(stream: StreamSettings, keys: VisitorKeys | None = None) -> FileFormat:
    """Return the format of a stream's file. Args: keys, of visitors' names; None for a sample."""
    log = stream.declared.source
    if not log.is_of_web_server:
        return cast("FileFormat", log.format)
    kind = cast("WebLogKind", log.format)
    return WebLog(kind, log.log_format) if keys is None else WebLog(kind, log.log_format, keys.key)


def visitor_keys(stream: StreamSettings, state_dir: Path) -> VisitorKeys:
    """Return the keys of the visitors of a stream's access log, which live beside all other keys."""
    assert isinstance(stream.source, SourceSettings)
    return VisitorKeys(state_dir / "noise_keys" / "@visitors" / _reading(stream, stream.source, state_dir))


def other_fields(streams: Sequence[StreamSettings]) -> list[str]:
    """Return the paths of the fields other than the time that any of the streams uses."""
    return list(dict.fromkeys(path for one in streams for path in one.declared.cell_fields))


def decodes_for(opened: Sequence[StreamSettings], streams: Sequence[StreamSettings]) -> bool:
    """Return whether a log that was opened for some streams decodes all that other streams need."""
    names_all = conditions_of(opened) >= conditions_of(streams)
    return names_all and {*other_fields(opened)} >= {*other_fields(streams)}


def conditions_of(streams: Sequence[StreamSettings]) -> frozenset[Condition | None]:
    """Return the conditions of the streams that count visitors of an access log."""
    declared = [one.declared for one in streams if one.declared.source.is_of_web_server]
    return frozenset(one.where for one in declared if VISITOR in one.cell_fields)


def time_field(stream: StreamSettings) -> TimeField:
    """Return the field that holds an event's time."""
    time = stream.declared.time
    return TimeField(time.field, time.format, time.zone or None)


def _reading(stream: StreamSettings, source: SourceSettings, state_dir: Path) -> str:
    """Return a name for one way of reading one file: positions in one sorted copy are invalid in another."""
    log = stream.declared.source
    file = real_place(source.file, log.format)
    # Relative to the state directory, so that both can be moved together.
    seen_from_state = os.path.relpath(file, state_dir.resolve())
    time = stream.declared.time
    zone = (time.zone,) if time.zone else ()
    form = (log.format, log.log_format) if log.log_format else (log.format,)
    facts = (seen_from_state, *form, time.field, time.format, *zone)
    return f"{file.stem.replace('*', 'all')}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"
