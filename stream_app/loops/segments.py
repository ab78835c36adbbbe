"""Finds the existing segments of a configured stream in store, ledger and witnesses.

The table of ``core/segments/plan.py`` then decides which of them run, and where the next one begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from msgspec import structs

from stream_app.config.plans import planned
from stream_app.config.settings import StreamSettings
from stream_app.core.declaration import Declaration
from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import LedgerEntry, StreamState
from stream_app.core.segments.names import base_of, generation, number_of
from stream_app.core.segments.plan import KnownSegment, Segment, Segments, beginning_at, segments_of
from stream_app.core.segments.strategies import last_text
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import stored_strategy
from stream_app.ports import OperatorError, Store


@dataclass(frozen=True, slots=True)
class ToldSegment:
    """A segment that has released, as its witness tells it.

    Args: strategy, None if no row tells it, because an older build wrote them; noted, by older builds beside
        its first row: the settings of segments up to it, by name.
    """

    strategy: Strategy | None
    noted: Mapping[str, Declaration] = field(default_factory=dict)


class Witnessed(Protocol):
    """The segments of streams, as their witnesses tell them."""

    async def newest(self, base: str) -> int:
        """Return the number of a stream's newest segment that has released; 0 if none has."""

    async def told(self, name: str) -> ToldSegment | None:
        """Return a segment as its witness tells it; None if the segment has released nothing."""


async def found_segments(
    store: Store,
    stream: StreamSettings,
    noted: Mapping[str, Declaration],
    entries: Sequence[LedgerEntry],
    now_us: int,
    witnessed: Witnessed,
) -> Segments:
    """Return the segments of a configured stream. It stores nothing.

    Guarantee: a segment that has released is known, also if the store has lost it.
    Args: noted, the notes of older builds about segments, by name; entries, of the source's ledger, and of
        the one outside the store, about this stream or the one before it.
    Raises: OperatorError, one line, if the settings of a segment that has released are lost.
    """
    known = [KnownSegment(stream.name)]
    if stream.declared.source.replay is None:
        known = await _known(store, stream, noted, entries, witnessed)
    configured = Segment(stream.name, stream.declared, stream.until_us)
    return segments_of(configured, known, entries, now_us)


def settings_of(stream: StreamSettings, segment: Segment) -> StreamSettings:
    """Return a segment's settings: its own declaration, and all else as configured.

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
    noted: Mapping[str, Declaration],
    entries: Sequence[LedgerEntry],
    witnessed: Witnessed,
) -> list[KnownSegment]:
    """Return every segment that has begun, oldest first.

    Witnesses are asked only if the store lacks a segment.
    """
    firsts: dict[int, int] = {}
    for entry in entries:
        if base_of(entry.stream) == stream.name:
            number = number_of(entry.stream)
            firsts[number] = min(entry.start_us, firsts.get(number, entry.start_us))
    released = await witnessed.newest(stream.name)
    names = [generation(stream.name, number) for number in range(1, max((1, *firsts, released)) + 1)]
    states = [await store.load(name) for name in names]
    told = [await witnessed.told(name) for name in names] if None in states else [None] * len(names)
    for one in told:
        noted = {**noted, **one.noted} if one is not None else noted
    known = list[KnownSegment]()
    for number, (name, state, one) in enumerate(zip(names, states, told, strict=True), start=1):
        strategy = None
        if state is not None:
            strategy = stored_strategy(name, last_text(state.strategy))
        elif one is not None and one.strategy is not None:
            strategy = one.strategy
        elif (declared := noted.get(name)) is not None:
            first_us = firsts.get(number, declared.time.first_us)
            declared = beginning_at(declared, first_us) if number > 1 else declared
            strategy = planned(replace(stream, name=name, declared=declared))
        elif released > 1 and number not in firsts:
            raise _settings_lost(stream.name, number, released)
        known.append(await _known_segment(store, stream, name, state, strategy, firsts.get(number)))
    return known


def _settings_lost(base: str, number: int, newest: int) -> OperatorError:
    return OperatorError(
        f"stream {base}: its generation {newest} has released, and the settings of generation {number} are "
        "lost: neither the store nor the rows of the witness have them; bring back the witness, or the store"
    )


async def _known_segment(
    store: Store,
    stream: StreamSettings,
    name: str,
    state: StreamState | None,
    strategy: Strategy | None,
    first_us: int | None,
) -> KnownSegment:
    """Return a segment. Args: strategy, None if only the ledger has the segment; first_us, as it says."""
    if strategy is None:
        return KnownSegment(name, first_us=first_us)
    # The id of a log is known once it is open. The loops compare it with the stored one.
    log = structs.replace(strategy.declared.source, state_id=None, cluster_id=None, topic_id=None)
    declared = structs.replace(strategy.declared, source=log)
    one = KnownSegment(name, state, replace(strategy, declared=declared), declared.time.first_us)
    if state is None or not one.has_stopped:
        return one
    return replace(one, is_shown=await _is_shown(store, name, state, stream.keep_us))
