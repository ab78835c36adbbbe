"""The segments of all configured streams."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from stream_app.config import Settings, StreamSettings
from stream_app.config.source import all_ledgers_of
from stream_app.core.records import LedgerEntry
from stream_app.core.segments.names import base_of
from stream_app.core.segments.plan import Segments
from stream_app.loops.segment_plan import SegmentPlan, sources_of
from stream_app.loops.segments import Witnessed, found_segments
from stream_app.ports import OutsideLedger, Store
from stream_app.ports.errors import about
from stream_app.together import each_to_its_end
from stream_app.wiring.known_logs import with_known_logs
from stream_app.wiring.older_segments import noted_in_files
from stream_app.wiring.witnessed import Witnesses


async def with_segments(
    settings: Settings,
    store: Store,
    outside: OutsideLedger | None,
    now_us: int,
    witnessed: Witnessed | None = None,
    elsewhere: Collection[str] = (),
) -> SegmentPlan:
    """Return the segments of each configured stream. It stores nothing.

    Args: witnessed, the facts from the witnesses; None: only those in files are asked, for commands over a
        store that a worker keeps; elsewhere, streams that another worker took to a segment since this process
        started: they go on as stored. Raises: OperatorError, as ``found_segments``; OSError.
    """
    settings = await with_known_logs(settings, store, outside)
    asked = witnessed or Witnesses(settings)
    names = {one.name for one in settings.streams}
    noted = await asyncio.to_thread(noted_in_files, settings.state_dir / "witness", names)
    kept = () if outside is None else await outside.entries()
    sources = dict.fromkeys(sources_of(settings))
    # By the streams that they are about: with a thousand streams, each would look at the entries of all.
    ledgers = {source: _by_stream([*await store.ledger(source), *kept], source) for source in sources}

    def entries(stream: StreamSettings) -> list[LedgerEntry]:
        about = (stream.name, stream.declared.successor_of)
        names = all_ledgers_of(stream, settings)
        return [entry for name in names for one in about if one for entry in ledgers[name].get(one, ())]

    async def look(stream: StreamSettings) -> Segments:
        with about(stream.name):
            return await found_segments(store, stream, noted, entries(stream), now_us, asked)

    found = tuple(
        replace(one, next=None) if base_of(one.newest) in elsewhere else one
        for one in await each_to_its_end(*map(look, settings.streams))
    )
    return SegmentPlan(settings, found, now_us)


def _by_stream(entries: Iterable[LedgerEntry], source: str) -> dict[str, list[LedgerEntry]]:
    """Return a source's entries by the configured names of the stream and of the one that it continues."""
    found = defaultdict[str, list[LedgerEntry]](list)
    for entry in entries:
        if entry.source == source:
            for name in {base_of(entry.stream), base_of(entry.successor_of or entry.stream)}:
                found[name].append(entry)
    return found


async def of_all_segments(settings: Settings, store: Store, witnessed: Witnessed | None = None) -> Settings:
    """Return the settings of every segment that the store or this machine knows, for commands.

    Args and Raises: as ``with_segments``.
    """
    return (await with_segments(settings, store, None, time.time_ns() // 1_000, witnessed)).history
