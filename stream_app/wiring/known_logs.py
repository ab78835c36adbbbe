"""The names of logs that were ever measured, and which of them may mean the events of a configured log."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from stream_app.config import Settings, SourceSettings, StreamSettings
from stream_app.config.source import all_ledgers_of, ledgers_of
from stream_app.ports import OutsideLedger, Store
from stream_app.ports.errors import StreamError
from stream_app.source_ledger import NAMES, SourceLedger, link
from stream_app.sources.copies import Beginning, beginnings
from stream_app.wiring.event_logs import note_of


async def with_known_logs(
    settings: Settings, store: Store, outside: OutsideLedger | None = None, more: Iterable[str] = ()
) -> Settings:
    """Return settings that know under which other names the configured logs may have been measured.

    Args: more, further names. Cost: as ``one_log.related``. Raises: OSError, as the store.
    """
    files = filter(_is_file, settings.streams)
    own = {stream.name: ledgers_of(stream, settings.file.parent)[-1] for stream in files}
    if not own:
        return settings
    entries = [] if outside is None else list(await outside.entries())
    sources = await store.sources()
    groups = {source for source in sources.values() if ":" not in source}
    for source in (NAMES, *sorted(groups)):
        entries += await store.ledger(source)
    log_of = own | sources | {entry.stream: entry.log or entry.source for entry in entries}
    noted = await asyncio.to_thread(_noted, settings.state_dir, log_of)
    names = {*own.values(), *more, *log_of.values(), *sources.values()}
    return replace(settings, logs=await asyncio.to_thread(settings.logs.among, names, noted))


def _noted(state_dir: Path, log_of: Mapping[str, str]) -> dict[str, set[Beginning]]:
    """Return how files of logs began, as this machine noted it, by log. Args: log_of, by stream."""
    noted = defaultdict[str, set[Beginning]](set)
    for stream, log in log_of.items():
        with suppress(OSError, ValueError):  # there is none, or it is refused when its stream is checked
            reading = json.loads(note_of(stream, state_dir).read_bytes())["reading"]
            noted[log] |= beginnings(state_dir / "sources" / reading)
    return noted


def ledger_of(
    stream: StreamSettings,
    settings: Settings,
    store: Store,
    outside: OutsideLedger | None,
    configured: Collection[str] | None = None,
) -> SourceLedger:
    """Return the ledger of a stream's source. Args: configured, the names of all streams."""
    _, *logs = names = ledgers_of(stream, settings.file.parent)
    others = settings.logs.others(names[-1])
    find = partial(_find_others, names[-1], settings, store, outside) if _is_file(stream) else None
    of_all = settings.names if configured is None else configured
    return SourceLedger(store, stream.accept, logs, outside, stream.total, of_all, others, find)


async def _find_others(
    name: str, settings: Settings, store: Store, outside: OutsideLedger | None, new: Iterable[str]
) -> Sequence[str]:
    """Return the other names of a log; compare anew if its files are not those of the last comparison.

    Args: new, names that may have come since. Cost: reads the first bytes of the log's files.
    """
    if not await asyncio.to_thread(settings.logs.knows, name, new):
        settings = await with_known_logs(settings, store, outside, [*settings.logs.names, *new])
    return settings.logs.others(name)


async def link_known(settings: Settings, store: Store) -> None:
    """Add to the ledgers of streams that have begun the measurements under other names of their logs.

    Earlier builds knew a log by one name only, and another configuration may have measured it since.
    """
    for stream in settings.streams:
        source, *logs = ledgers_of(stream, settings.file.parent)
        others = settings.logs.others([source, *logs][-1])
        if others and any(entry.stream == stream.name for entry in await store.ledger(source)):
            await link(store, [source, *logs], others)


async def halted_by(fault: StreamError, settings: Settings, store: Store) -> list[StreamSettings]:
    """Return the streams that a fault of one stops: itself, and without a ledger outside those of its source.

    Only the stream's witness then knows its cost after a loss of the store: no sum is certain without it.
    """
    if settings.ledger is not None:
        return [stream for stream in settings.streams if stream.name == fault.base]
    settings = await with_known_logs(settings, store, None)
    ledgers = {stream.name: {*all_ledgers_of(stream, settings)} for stream in settings.streams}
    return [stream for stream in settings.streams if ledgers[stream.name] & ledgers[fault.base]]


def _is_file(stream: StreamSettings) -> bool:
    return isinstance(stream.source, SourceSettings)
