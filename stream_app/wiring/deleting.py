"""Deletes what no stream needs any more: counted events of spools, and the keys of past days' visitors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Never

from stream_app.config import SourceSettings, StreamSettings
from stream_app.core.instants import format_instant
from stream_app.core.records import StreamState
from stream_app.core.releases.release import RowLink
from stream_app.core.segments.strategies import current
from stream_app.core.visits import DAY_US, VISITOR
from stream_app.outage import Outage
from stream_app.ports import Witness
from stream_app.spool import delete_parts
from stream_app.vault.visitor_keys import VisitorKeys

log = logging.getLogger(__name__)

Load = Callable[[str], Awaitable[StreamState | None]]  # of the store

DELETE_EVERY_S = 60.0


async def destroy_visitor_keys(keys: VisitorKeys, first_needed: Callable[[], Awaitable[int]]) -> Never:
    """Destroy, for ever, the keys of spent days. Args: first_needed, returns the first day that is not."""
    outage, said = Outage(log, "destruction of visitors' keys"), False

    async def destroy() -> None:
        nonlocal said
        first = await first_needed()
        await asyncio.to_thread(keys.destroy_before, first)
        if first < (gone := keys.gone_before()) and not said:
            said = True
            log.warning(
                "visitors of days before %s are refused, because the keys of their names are destroyed; "
                "correct a clock that is wrong, or remove %s: then they count anew, under second names",
                *(format_instant(gone * DAY_US)[:10], keys.note),
            )

    while True:
        await outage.outlast(destroy)
        outage.over()
        await asyncio.sleep(DELETE_EVERY_S)


async def today() -> int:
    """Return the day of UTC: events that pages send are dated when they arrive."""
    return time.time_ns() // 1_000 // DAY_US


async def first_unreleased(
    streams: Sequence[StreamSettings], witnesses: Mapping[str, Witness], load: Load
) -> int:
    """Return the first day of which not every stream has released all bins; at most today.

    A stream over an access log counts no event after its own bin has closed (``check_visitors``). A record of
    an earlier day gets no name afterwards, and is late anyway, except in a stream that is configured later.
    Args: streams, all over one log; load, of the store.
    """
    needed = [await today()]
    for stream in streams:
        if VISITOR not in stream.declared.cell_fields:
            continue
        state = await load(stream.name)
        if state is not None and (state.stopped or state.has_ended):
            continue  # it counts nothing any more
        head, times = await witnesses[stream.name].head(stream.name), stream.declared.time
        begun_us = times.first_us or 0  # always a day's start
        needed.append((begun_us if head is None else times.binning.end_us(RowLink.of(head[1]).bin)) // DAY_US)
    return min(needed)


async def delete_counted(
    streams: Sequence[StreamSettings], witnesses: Mapping[str, Witness], skew_us: int, load: Load
) -> Never:
    """Delete, for ever, a spool's events that every stream has released and that are old enough.

    Args: streams, all over one spool; skew_us, by how much the listener's clock may differ; load, of
        the store.
    """
    outage = Outage(log, "deletion of counted events")
    while True:
        now_us = time.time_ns() // 1_000
        await outage.outlast(partial(delete_once, streams, witnesses, skew_us, now_us, load))
        outage.over()
        await asyncio.sleep(DELETE_EVERY_S)


async def delete_once(
    streams: Sequence[StreamSettings],
    witnesses: Mapping[str, Witness],
    skew_us: int,
    now_us: int,
    load: Load,
) -> int:
    """Delete the parts that may be deleted now; return their number."""
    source = streams[0].source
    assert isinstance(source, SourceSettings)
    if not source.file.is_dir():
        return 0
    kept_us = [one.source.keep_us for one in streams if isinstance(one.source, SourceSettings)]
    before_us = now_us - max(keep_us for keep_us in kept_us if keep_us is not None)
    for stream in streams:
        state = await load(stream.name)
        if state is not None and state.stopped:
            continue  # its total is spent: none of its events counts, so none is kept for it
        head = await witnesses[stream.name].head(stream.name)
        if head is None:
            return 0
        times = stream.declared.time
        # Whatever arrived before this instant can count in witnessed bins only: it is dated no further ahead.
        open_bin, ahead = RowLink.of(head[1]).bin + 1, times.max_ahead_bins
        if state is not None:  # it may still run with other settings than the configured ones
            running = current(state.strategy).declared
            ahead = max(ahead, running.time.max_ahead_bins)
        before_us = min(before_us, times.binning.start_us(open_bin - ahead - 1) - skew_us)
    return await asyncio.to_thread(delete_parts, source.file, before_us)
