"""Announces a change of what arrival decides (grace, late policy, how early a record may be).

The clock decides where the change begins: at the end of the running epoch, or of a later one if too few of
its bins are still open. The store keeps it from then on, and refuses the cuts of loops that do not know it.
So every loop knows the change before any record can meet it, and no record decides where it begins.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from stream_app.core.arrival import ArrivalChange
from stream_app.core.instants import format_instant
from stream_app.core.records import Reply, StreamState
from stream_app.core.segments.strategies import announced_bin, may_announce, pending_change
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import facts_in_words
from stream_app.ports import Clock, Store

log = logging.getLogger(__name__)


async def announce(
    store: Store, clock: Clock, running: Strategy, wanted: Strategy, state: StreamState
) -> StreamState:
    """Announce the configured settings, or take back others; return the state with what is announced now.

    Nothing happens if too few bins are open, or an earlier change still decides about records: the next call
    or the next epoch announces it.
    """
    pending = pending_change(state)
    announced = running.declared.arrival if pending is None else pending.after
    may_follow = not state.stopped and state.epoch.end_reason is None and running.declared.last_bin is None
    if wanted.declared.arrival == announced or not may_follow:
        return state
    change = _change_to_announce(running, wanted, state, await clock.now_us())
    if change is state.change:
        return state
    reply = await store.announce(running.stream, state.epoch.epoch, state.change, change)
    if reply not in (Reply.DONE, Reply.ALREADY):
        return await store.load(running.stream) or state
    if reply is Reply.DONE:
        _log(running, change)
    return replace(state, change=change)


def _change_to_announce(
    running: Strategy, wanted: Strategy, state: StreamState, now_us: int
) -> ArrivalChange | None:
    """Return the change that the store is to hold: the state's own object if it stays."""
    now, goal = running.declared.arrival, wanted.declared.arrival
    held, pending = state.change, pending_change(state)
    if pending is not None:
        if not may_announce(running, state, pending.bin, now_us):
            return held
        return None if goal == now else ArrivalChange(pending.bin, now, goal)
    if held is not None and not held.is_over(state.released_bin):
        return held
    bin = announced_bin(running, state, now_us)
    is_counted = state.until_bin is None or bin < state.until_bin
    return ArrivalChange(bin, now, goal) if is_counted else held


def _log(running: Strategy, change: ArrivalChange | None) -> None:
    if change is None:
        log.warning("stream %s: the announced change is taken back; its settings stay", running.stream)
        return
    closing = running.declared.time.closing
    log.warning(
        "stream %s: from %s on, with a new epoch: %s; until %s, the old settings can be put back",
        *(running.stream, format_instant(closing.binning.start_us(change.bin))),
        facts_in_words(running.declared, running.declared.with_arrival(change.after)),
        format_instant(closing.instant_us(change.last_cut_bin)),
    )
