"""A stream's section ``source``: files, access logs, a spool, a topic, rows of an engine; names of logs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import escape
from pathlib import Path
from typing import Literal, get_args

from stream_app.config import values
from stream_app.config.document import Section
from stream_app.config.kafka import read_topic, topic_identity
from stream_app.config.one_log import of_spool, related, says_csv
from stream_app.config.settings import DAY_US, Settings, SourceSettings, StreamSettings, TopicSettings
from stream_app.core.counting.where import AllOf, Condition, OneOf
from stream_app.core.declaration import Log, LogFormat, Privacy, Replay, WebLogFormat
from stream_app.core.instants import format_instant
from stream_app.sources.log_format import pattern_of
from stream_app.sources.packed import unpacked_name

_OF_JSON = (".ndjson", ".jsonl", ".json", ".log", ".txt")
_KEEP_US = values.duration_between("1h", "3650d", "events must outlive a restart of the worker")

MOST_OF_VISITOR = 10  # events of a visitor's day that count, unless the stream says another number
NO_BOTS = OneOf("bot", ("false",))
WEB_LOGS: tuple[WebLogFormat, ...] = get_args(WebLogFormat)

SIGNED_EVENT = "each event adds 1 to one row and changes nothing else"
SIGNED_USER = "each user adds at most max_events to the rows of a period and changes nothing else"


def read_source(
    section: Section, directory: Path, spools: Path
) -> tuple[Log, SourceSettings | TopicSettings]:
    """Return the public part of a source, and how this configuration reads the source.

    Args: directory, of the configuration; spools, where events that arrive over HTTP are stored.
    """
    if {"topic", "counts"} & set(section.names()):
        return read_topic(section, directory)
    if "http" in section.names():
        return _read_spool(section, spools)
    if "file" not in section.names():
        raise section.error("file", "is missing; name a file, or a topic of Kafka")
    file = (directory / section.take("file", _file)).absolute()
    said = format_of(file)
    if said is None and "format" not in section.names():
        why = f"is missing: {file.name} names files of CSV and others; write ndjson or csv"
        raise section.error("format", why)
    form: LogFormat = section.take("format", values.one_of("ndjson", "csv", *WEB_LOGS), said or "ndjson")
    log_format = read_log_format(section, form)
    name = section.take("group", values.name, "") or file_identity(file, directory, form)
    start: Literal["earliest", "latest"] = section.take(
        "start", values.one_of("earliest", "latest"), "earliest"
    )
    replay, speed = _replay(section.section("replay"))
    if replay and form in WEB_LOGS:
        # A day's visitors are known until it is released, and a sorted copy would hold their addresses.
        first = format_instant(replay.from_us // DAY_US * DAY_US)
        text = f"is not for access logs: leave it out, and write time.first: {first}, which counts the past"
        raise section.error("replay", text)
    if replay:
        section.refuse("start", "is for a live stream; a replay starts at replay.from, take one out")
    section.finish()
    return Log(name, form, replay, log_format=log_format), SourceSettings(file, start, speed)


def _read_spool(section: Section, spools: Path) -> tuple[Log, SourceSettings]:
    name = section.take("http", values.name)
    group = section.take("group", values.name, "") or f"http:{name}"
    start: Literal["earliest", "latest"] = section.take(
        "start", values.one_of("earliest", "latest"), "earliest"
    )
    keep_us = section.take("keep", _KEEP_US, 30 * DAY_US)
    section.finish()
    return Log(group, "ndjson", None), SourceSettings(spools / name, start, keep_us=keep_us)


def _file(value: object) -> str:
    text = values.text(value)
    if "\0" in text:
        raise ValueError("is no name of a file")
    if "*" in str(Path(text).parent):
        raise ValueError("may have * in its last part only: all files of a log are in one directory")
    return text


def format_of(file: Path) -> Literal["ndjson", "csv"] | None:
    """Return the format that a file's name says; NDJSON if it says none.

    If a list's name ends in ``*`` and says no format, the names of its files decide. None: they say both.

    >>> [format_of(Path(name)) for name in ("a.csv", "a-*.CSV.gz", "a*.csv*", "a.json", "a.log*")]
    ['csv', 'csv', 'csv', 'ndjson', 'ndjson']
    """
    name = file.name.lower()
    if says_csv(name):
        return "csv"
    if not name.endswith("*") or unpacked_name(name.rstrip("*")).endswith(_OF_JSON):
        return "ndjson"
    said = {says_csv(found.name.lower()) for found in file.parent.glob(file.name)}
    return None if len(said) > 1 else "csv" if True in said else "ndjson"


def file_identity(file: Path, directory: Path, form: LogFormat) -> str:
    """Return a file's name in the ledger, the same for every spelling of its path.

    Args: directory, to which the name is relative; names from different directories do not match.
    """
    return "file:" + Path(os.path.relpath(real_place(file, form), directory.resolve())).as_posix()


def real_place(file: Path, form: LogFormat) -> Path:
    """Return where a file is, without links; also if they lead in a circle, which ``Path.resolve`` refuses.

    The name of an access log may be a link that leads to another file each day, so it stays.
    """
    if form in WEB_LOGS:
        return Path(os.path.realpath(file.parent), file.name)
    return Path(os.path.realpath(file))


def log_of(source: SourceSettings | TopicSettings) -> str:
    """Return a log's name on this machine, the same for every spelling of its path."""
    if isinstance(source, TopicSettings):
        return topic_identity(source.topic, source.cluster)
    return f"file:{os.path.realpath(source.file)}" if source.keep_us is None else f"http:{source.file.name}"


def ledgers_of(stream: StreamSettings, directory: Path) -> tuple[str, ...]:
    """Return the names of a source's ledgers: the declared name, and the log's own name if it is in a group.

    Args: directory, of the configuration.
    """
    name, source = stream.declared.source.name, stream.source
    if isinstance(source, SourceSettings) and source.keep_us is None:
        form = stream.declared.source.format  # a group's name has no colon
        own = name if ":" in name else file_identity(source.file, directory, form)
    else:
        own = log_of(source)
    return (name,) if name == own else (name, own)


def all_ledgers_of(stream: StreamSettings, settings: Settings) -> tuple[str, ...]:
    """Return ``ledgers_of`` a stream, then the other names under which its log may have been measured."""
    names = ledgers_of(stream, settings.file.parent)
    return *names, *settings.logs.others(names[-1])


def same_logs(streams: Sequence[StreamSettings]) -> dict[str, tuple[str, ...]]:
    """Return which logs of these streams may mean the same events, by ``log_of``; see ``one_log``."""
    places = dict[tuple[str, Path], None]()
    for stream in streams:
        if isinstance(source := stream.source, SourceSettings):
            file = source.file
            files = [file] if source.keep_us is None else [of_spool(file)]
            if stream.declared.source.is_of_web_server and "*" not in file.name:
                # With the files that it was rotated to: sources/rotated.py finds them by their names.
                rotated = f"{escape(file.stem)}[.-][0-9o]*{escape(file.suffix)}*"
                files = [file.with_name(f"{escape(file.name)}*"), file.with_name(rotated)]
            places |= dict.fromkeys((log_of(source), one) for one in files)
    return related(places)


def by_source(streams: Sequence[StreamSettings]) -> dict[str, list[StreamSettings]]:
    """Return the streams whose costs one ledger adds up, by the name of each source.

    They name one source, or their logs may mean the same events. All streams of a log name the same source:
    the configuration is refused otherwise.
    """
    groups: dict[str, list[StreamSettings]] = {}
    same = same_logs(streams)
    for stream in streams:
        log = log_of(stream.source)
        names = (f"source {stream.declared.source.name}", log, *same.get(log, ()))
        known = {id(groups[name]): groups[name] for name in names if name in groups}
        first, *more = known.values() or [[]]
        for other in more:
            first += other
            groups |= {name: first for name, group in groups.items() if group is other}
        first.append(stream)
        groups |= dict.fromkeys(names, first)
    order = {stream.name: number for number, stream in enumerate(streams)}
    for group in {id(group): group for group in groups.values()}.values():
        group.sort(key=lambda stream: order[stream.name])
    return {stream.declared.source.name: groups[log_of(stream.source)] for stream in streams}


def by_log(streams: Sequence[StreamSettings]) -> list[list[StreamSettings]]:
    """Return the streams grouped by log; each log is decoded once for its group."""
    groups: dict[str, list[StreamSettings]] = {}
    for stream in streams:
        groups.setdefault(log_of(stream.source), []).append(stream)
    return list(groups.values())


def _replay(section: Section) -> tuple[Replay | None, float | None]:
    if not section.written:
        return None, None
    replay = Replay(section.take("from", values.instant_us), section.take("to", values.instant_us))
    speed = section.take("speed", values.speed, None)
    section.finish()
    if replay.from_us >= replay.to_us:
        raise section.error("to", "must be later than replay.from; move one of them")
    return replay, speed


def read_log_format(section: Section, form: LogFormat) -> str:
    """Read ``source.log_format``; empty unless the format is ``log_format``. Raises: ConfigError."""
    if form != "log_format":
        section.refuse("log_format", "belongs to format: log_format; write that, or take log_format out")
        return ""
    return section.take("log_format", _log_format)


def _log_format(value: object) -> str:
    text = values.text(value)
    pattern_of(text)
    return text


def without_bots(where: Condition | None, log: Log) -> Condition | None:
    """Return the condition of a stream: over an access log bots do not count, unless it names them."""
    if not log.is_of_web_server or (where is not None and "bot" in where.fields):
        return where
    if where is None:
        return NO_BOTS
    return AllOf((NO_BOTS, *(where.parts if isinstance(where, AllOf) else (where,))))


def check_signed(section: Section, privacy: Privacy, log: Log) -> None:
    """Read ``privacy.signed``, which streams over rows of an engine need. Raises: ConfigError."""
    if not log.origins:
        section.refuse("signed", "is for source.counts, whose rows an engine makes; take it out")
        return
    needed = SIGNED_EVENT if privacy.per_user is None else SIGNED_USER
    if section.take("signed", values.one_of(needed), None) is None:
        text = "is missing: the service cannot check what the engine counts"
        raise section.error("signed", f'{text}; if it holds, write signed: "{needed}"')
