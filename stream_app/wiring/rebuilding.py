"""Puts back rows that readers saw: into a store from witnesses, or into a lost witness from the store."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from stream_app.config import Settings, StreamSettings
from stream_app.config.plans import planned
from stream_app.core.records import EpochRecord, Reply, WitnessRow
from stream_app.core.releases.release import RowLink
from stream_app.core.releases.restored import Restored, WitnessedStream
from stream_app.core.segments.history import REBUILDING, read_strategy
from stream_app.core.segments.strategies import with_strategy
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import check_counted
from stream_app.loops.publishing import write_rows
from stream_app.loops.recovery import witnessed_stream
from stream_app.ports import OperatorError, Witness
from stream_app.state.history import Histories
from stream_app.state.redis_store import RedisStore
from stream_app.wiring.event_logs import named_as_begun
from stream_app.wiring.known_segments import Witnesses, of_all_segments
from stream_app.wiring.starting import check_measured_before
from stream_app.wiring.storage import (
    file_witness,
    open_topics,
    outside_ledger,
    own_directory,
    witnesses_of,
    writing,
)


async def rebuild(settings: Settings) -> list[str]:
    """Put back every configured stream that the store does not know; return a line about each stream.

    Guarantee: no noise is drawn and no epoch opens. A stream gets rows, nodes and epochs as readers saw them,
        and no state: a worker that starts later takes it for lost, as without this call. It may be repeated.
    Raises: OperatorError for a stream that a start would refuse, or whose witness lacks values.
    """
    async with AsyncExitStack() as resources:
        await resources.enter_async_context(own_directory(settings, patience_s=0))
        store = await resources.enter_async_context(writing(settings))
        topics = await open_topics(settings, resources)
        settings = await of_all_segments(settings, store, Witnesses(settings, topics))
        witnesses = witnesses_of(settings, topics, resources)
        # A stream that is put back in part was checked when its rebuilding began.
        unchecked = tuple([one for one in settings.streams if not await _is_in_part(store, one.name)])
        now_us, outside = time.time_ns() // 1_000, outside_ledger(settings)
        await check_measured_before(replace(settings, streams=unchecked), store, witnesses, outside, now_us)
        return [
            f"{one.name}: {await _rebuilt(one, settings, store, witnesses[one.name])}"
            for one in settings.streams
        ]


async def new_witness(settings: Settings) -> list[str]:
    """Write the visible rows to the witnesses on this machine that have no row; return a line per stream.

    Only the operator knows that the store lost nothing, and says so with this call. It may be repeated.
    Guarantee: the store does not change. Raises: OperatorError.
    """
    async with AsyncExitStack() as resources:
        await resources.enter_async_context(own_directory(settings, patience_s=0))
        store = await resources.enter_async_context(writing(settings))
        settings = await of_all_segments(settings, store)
        witness = file_witness(settings, resources)
        return [
            f"{stream.name}: {await _witnessed_anew(store, witness, stream.name)}"
            for stream in settings.streams
            if settings.output_of(stream.name) is None
        ] or ["every stream has a topic under outputs, which is its witness; workers write it"]


async def _witnessed_anew(store: RedisStore, witness: Witness, stream: str) -> str:
    if (head := await witness.head(stream)) is not None:
        return f"its witness has rows up to {head[0]:,}; nothing was written"
    state, seen = await store.load(stream), await store.visible_seq(stream)
    if not seen:
        return "readers have seen nothing of it; nothing was written"
    if state is None:
        return "Redis holds only what rebuild put back; put the state.dir of then back; nothing was written"
    check_counted(stream, state)
    await write_rows(store, witness, Strategy.from_json(state.strategy), seen)
    written = await witness.rows(stream, 0)
    since = json.loads(written[-1].row)["start"]
    return f"{len(written):,} bins up to the one of {since} were written to its witness"


async def _rebuilt(stream: StreamSettings, settings: Settings, store: RedisStore, witness: Witness) -> str:
    rows = await witness.rows(stream.name, 0)
    if not rows:
        return "its witness has no rows, so there is nothing to put back"
    last = rows[-1]
    if await _has(store, stream.name, last):
        [(first, _)] = await store.rows(stream.name, 0, 1)
        kept = sum(row.seq >= first for row in rows)
        if kept < len(rows):
            return f"the store has the newest {kept:,} bins of its witness; retention removed the others"
        return f"the store has all {len(rows):,} bins of its witness"
    begun = await named_as_begun(stream, planned(stream), settings)
    witnessed = witnessed_stream(stream.name, rows, [begun])
    strategy = witnessed.last or begun
    texts = with_strategy([one.to_json() for one in witnessed.strategies.values()], strategy.to_json())
    steps = await asyncio.to_thread(_steps, witnessed, strategy)
    link = RowLink.of(last.row)
    if not await _put_back(Histories(store), strategy.stream, texts, witnessed.epochs, link, steps):
        return "the store has a part of it; its worker puts back the rest at a start"
    return f"{len(rows):,} bins were put back from its witness; its worker goes on after them"


async def _put_back(
    histories: Histories,
    name: str,
    texts: Sequence[bytes],
    epochs: Sequence[EpochRecord],
    last: RowLink,
    steps: Iterable[Restored],
) -> bool:
    """Store the rows of a stream, then show them; return False if the store has, or gets, other rows.

    Args: as ``Histories.begin_rebuild``. Until the last row is there, no worker counts the stream.
    """
    reply = await histories.begin_rebuild(texts, epochs, last)
    for step in steps:
        if reply is Reply.CONFLICT:
            return False
        reply = await histories.put(name, step)
    return reply is not Reply.CONFLICT and await histories.end_rebuild(name, last, texts) is Reply.DONE


async def _has(store: RedisStore, stream: str, last: WitnessRow) -> bool:
    """Return whether the store has a row, and all rows before it."""
    has_row = await store.rows(stream, last.seq - 1, 1) == [(last.seq, last.row)]
    return has_row and not await _is_in_part(store, stream)


async def _is_in_part(store: RedisStore, stream: str) -> bool:
    """Return whether an earlier call died before it had put back all rows of a stream."""
    state = await store.load(stream)
    return state is not None and read_strategy(state.strategy)[1] == REBUILDING


def _steps(witnessed: WitnessedStream, running: Strategy) -> list[Restored]:
    try:
        return list(witnessed.restored(0, running.hash))
    except ValueError as refusal:
        raise OperatorError(
            f"stream {running.stream}: it cannot be rebuilt: {refusal}; restore a backup of the store"
        ) from None
