"""Which segments of a configured stream exist: what store, ledger, notes and witnesses say of them.

The table of ``core/segments/plan.py`` then decides which of them run, and where the next one begins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from stream_app.config.plans import planned
from stream_app.config.settings import StreamSettings
from stream_app.core.declaration import Declaration
from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import LedgerEntry, StreamState
from stream_app.core.segments.names import base_of, generation, number_of
from stream_app.core.segments.plan import (
    KnownSegment,
    Segment,
    Segments,
    beginning_at,
    noted_first,
    segments_of,
)
from stream_app.core.segments.strategies import last_text
from stream_app.loops.configured import stored_strategy
from stream_app.ports import OperatorError, Store

_MOST_WITHOUT_ROWS = 2  # segments in a row that may have ended before they released anything


@dataclass(frozen=True, slots=True)
class Released:
    """What its witness says of a segment that has released.

    Args: since, the start of its first row; notes, the settings of segments up to it, by name, if the
        witness is a topic.
    """

    since: str
    notes: Mapping[str, Declaration]


# What the witness of a segment says; None: the segment has released nothing.
Witnessed = Callable[[str], Awaitable[Released | None]]


async def found_segments(
    store: Store,
    stream: StreamSettings,
    notes: Mapping[str, Declaration],
    entries: Sequence[LedgerEntry],
    now_us: int,
    witnessed: Witnessed,
) -> Segments:
    """Return the segments of a configured stream. It stores nothing.

    Guarantee: a segment that has released is known, also if the store and the notes have lost it.
    Args: notes, what this machine noted of segments, by name: with it a lost store's are known; entries,
        of the source's ledger, and of the one outside the store, about this stream or the one before it.
    Raises: OperatorError, one line, if the settings of a segment that has released are lost.
    """
    known = [KnownSegment(stream.name)]
    if stream.declared.source.replay is None:
        known = await _known(store, stream, notes, entries, witnessed)
    configured = Segment(stream.name, stream.declared, stream.until_us)
    return segments_of(configured, known, entries, now_us)


def settings_of(stream: StreamSettings, segment: Segment) -> StreamSettings:
    """Return a segment's settings: what is no promise is as configured.

    The operator has accepted sums for the first segment, and edits the same stream.
    """
    accept = stream.accept if number_of(segment.name) == 1 else ACCEPTED
    facts = {"name": segment.name, "declared": segment.declared, "until_us": segment.until_us}
    return replace(stream, accept=accept, **facts)  # type: ignore[arg-type]


async def _is_shown(store: Store, name: str, state: StreamState, keep_us: int | None) -> bool:
    """Return whether a segment that has ended has no rows left to show, and no old epochs to remove."""
    if await store.visible_seq(name) < state.seq:
        return False  # the worker that released its last rows died before it showed them
    oldest = None if keep_us is None else await store.oldest_epoch(name)
    return oldest is None or oldest.epoch == state.epoch.epoch


async def _known(
    store: Store,
    stream: StreamSettings,
    notes: Mapping[str, Declaration],
    entries: Sequence[LedgerEntry],
    witnessed: Witnessed,
) -> list[KnownSegment]:
    """Return every segment that has begun, or whose beginning is stored, oldest first."""
    firsts: dict[int, int] = {}
    for entry in entries:
        if base_of(entry.stream) == stream.name:
            number = number_of(entry.stream)
            firsts[number] = min(entry.start_us, firsts.get(number, entry.start_us))
    known = list[KnownSegment]()
    notes, released = await _with_witnessed(store, stream.name, notes, max(firsts, default=1), witnessed)
    for number in range(1, max((1, *firsts, *released)) + 1):
        name = generation(stream.name, number)
        first_us = firsts.get(number)
        if first_us is None and (note := notes.get(name)) is not None:
            first_us = note.time.first_us
        known.append(await _look(store, stream, name, notes, first_us))
    for number, one in enumerate(known, start=1):
        if released and one.strategy is None and number not in firsts:
            raise _settings_lost(stream.name, number, released)
    while (note := notes.get(name := generation(stream.name, len(known) + 1))) is not None:
        first_us = noted_first(known[-1], note)
        if first_us is None:
            break
        known.append(await _look(store, stream, name, notes, first_us))
    return known


async def _with_witnessed(
    store: Store, base: str, notes: Mapping[str, Declaration], newest: int, witnessed: Witnessed
) -> tuple[Mapping[str, Declaration], dict[int, Released]]:
    """Return the notes with those of witnesses, and the segments whose witness was asked and has rows.

    The witnesses of the segments after the newest one are always asked: a store that was set back, and a
    machine without notes, do not know that they began.
    Args: newest, the number of the newest segment that a ledger knows.
    """
    names = [generation(base, number) for number in range(1, newest + 1)]
    lacks = newest > 1 and any([name not in notes and await store.load(name) is None for name in names])
    found, released = dict(notes), dict[int, Released]()
    number, last = 2 if lacks else newest + 1, newest
    while number <= last + _MOST_WITHOUT_ROWS + 1:
        if (said := await witnessed(generation(base, number))) is not None:
            released[number], last = said, max(last, number)
            found |= said.notes  # a later segment's witness has the last settings of those before it
        number += 1
    return found, released


def _settings_lost(base: str, number: int, released: Mapping[int, Released]) -> OperatorError:
    latest = max(released)
    return OperatorError(
        f"stream {base}: its generation {latest} has released from {released[latest].since} on, and the "
        f"settings of generation {number} are lost: neither the store nor the files beside the witness have "
        f"them; bring back state.dir/witness/{base}*.json, or the store"
    )


async def _look(
    store: Store,
    stream: StreamSettings,
    name: str,
    notes: Mapping[str, Declaration],
    first_us: int | None,
) -> KnownSegment:
    state, note = await store.load(name), notes.get(name)
    if state is not None:
        strategy = stored_strategy(name, last_text(state.strategy))
    elif note is not None:
        if number_of(name) > 1:
            note = beginning_at(note, first_us)
        strategy = planned(replace(stream, name=name, declared=note))
    else:
        return KnownSegment(name, first_us=first_us)
    # The id of a log is known once it is open. The loops compare it with the stored one.
    log = structs.replace(strategy.declared.source, state_id=None, cluster_id=None, topic_id=None)
    declared = structs.replace(strategy.declared, source=log)
    one = KnownSegment(name, state, replace(strategy, declared=declared), declared.time.first_us)
    if state is None or not one.has_stopped:
        return one
    return replace(one, is_shown=await _is_shown(store, name, state, stream.keep_us))
