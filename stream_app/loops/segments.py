"""Finds the segments of configured streams, and carries out what the table of segments decides.

Store, ledger and witnesses know which segments exist. The table of ``core/segments/plan.py`` decides which of
them run, and where the next one begins. Then ends are stored, edges awaited, and beginnings logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from msgspec import structs

from stream_app.config.settings import Settings, StreamSettings
from stream_app.config.source import all_ledgers_of
from stream_app.core.instants import format_instant
from stream_app.core.ledger import ACCEPTED
from stream_app.core.records import LedgerEntry, Reply, StreamState
from stream_app.core.segments.names import base_of, generation, number_of
from stream_app.core.segments.plan import (
    KnownSegment,
    NextSegment,
    Segments,
)
from stream_app.core.segments.strategies import last_text
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import facts_in_words, stored_strategy
from stream_app.ports import Clock, OperatorError, Store

log = logging.getLogger(__name__)


class Witnessed(Protocol):
    """What the witnesses of streams know about their segments."""

    async def newest(self, base: str) -> int:
        """Return the number of a stream's newest segment that has released; 0 if none has."""

    async def strategy(self, name: str) -> Strategy | None:
        """Return the strategy in the rows of a segment's witness; None if no row holds it."""


async def _is_shown(store: Store, name: str, state: StreamState, keep_us: int | None) -> bool:
    """Return whether a segment that has ended has no rows left to show, and no old epochs to remove."""
    if await store.visible_seq(name) < state.seq:
        return False  # the worker that released its last rows died before it showed them
    oldest = None if keep_us is None else await store.oldest_epoch(name)
    return oldest is None or oldest.epoch == state.epoch.epoch


async def known_segments(
    store: Store, stream: StreamSettings, entries: Sequence[LedgerEntry], witnessed: Witnessed
) -> list[KnownSegment]:
    """Return every segment of a configured stream that has begun, oldest first; one at least.

    Guarantee: a segment that has released is known, also if the store has lost it. Witnesses are asked only
        if the store lacks a segment.
    Args: entries, of the source's ledger, and of the one outside the store, about this stream or the one
        before it.
    Raises: OperatorError, one line, if the settings of a segment that has released are lost.
    """
    if stream.declared.source.replay is not None:
        return [KnownSegment(stream.name)]
    firsts: dict[str, int] = {}
    for entry in entries:
        if entry.base == stream.name:
            firsts[entry.stream] = min(entry.start_us, firsts.get(entry.stream, entry.start_us))
    released = await witnessed.newest(stream.name)
    newest = max(1, released, *map(number_of, firsts))
    names = [generation(stream.name, number) for number in range(1, newest + 1)]
    states = [await store.load(name) for name in names]
    lacks = None in states
    in_rows = [await witnessed.strategy(name) for name in names] if lacks else [None] * len(names)
    known = list[KnownSegment]()
    for name, state, strategy in zip(names, states, in_rows, strict=True):
        if state is not None:
            strategy = stored_strategy(name, last_text(state.strategy))
        elif strategy is None and released > 1 and name not in firsts:
            raise OperatorError(
                f"stream {stream.name}: its generation {released} has released, and the settings of "
                f"generation {number_of(name)} are lost: neither the store nor the rows of the witness have "
                "them; bring back the witness, or the store"
            )
        known.append(await _known_segment(store, stream, name, state, strategy, firsts.get(name)))
    return known


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
    if state is None or not one.is_over:
        return one
    return replace(one, is_shown=await _is_shown(store, name, state, stream.keep_us))


_LONGEST_SLEEP_S = 60.0  # the clock may be set meanwhile
_LOOK_S = 5.0  # between two looks for segments of other workers: until then their bins wait
_LOOK_S_PER_LEDGER = 0.06  # so many ledgers cost no more time than one
_AGAIN_US = 60_000_000  # before a segment that cannot begin is tried again


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """The configuration with each stream's segments.

    Args: configured, the settings as the file has them; found, the segments of each stream, in their order;
        now_us, when the store was asked.
    """

    configured: Settings
    found: tuple[Segments, ...]
    now_us: int

    @property
    def following(self) -> list[NextSegment]:
        """The segments that are wanted next."""
        return [one.next for one in self.found if one.next is not None]

    @property
    def due(self) -> list[NextSegment]:
        """The segments whose beginning is to be stored now, if it is not."""
        return [following for following in self.following if following.is_due(self.now_us)]

    @property
    def begun(self) -> set[str]:
        """The names of the segments that this start begins, unless another worker is faster."""
        reserved = {one.newest for one in self.found if one.is_reserved}
        return reserved | {following.segment.name for following in self.due}

    @property
    def now(self) -> Settings:
        """The settings of the segments that a worker runs now."""
        return self._settings(())

    @property
    def checked(self) -> Settings:
        """The settings that a start checks: of the segments that run now and of those wanted next."""
        return self._settings(self.following)

    @property
    def beginning(self) -> Settings:
        """The settings of the segments that run, once the beginnings that are due are stored."""
        return self._settings(self.due)

    @property
    def history(self) -> Settings:
        """The settings of all segments that are known, also of those that ended."""
        return self._settings((), with_ended=True)

    @property
    def refused(self) -> list[str]:
        """A line about each segment that cannot begin."""
        return [one.refused for one in self.found if one.refused is not None]

    @property
    def abandoned(self) -> list[str]:
        """A line about each stream that ends without a next segment, although no configured end says so."""
        return [
            f"{found.stream}: it ends at {format_instant(found.abandoned_us)}, and this "
            "configuration does not say how it goes on; start a worker with the configuration that was to "
            "follow, or change this one"
            for found in self.found
            if found.abandoned_us is not None
        ]

    def without(self, refused: Mapping[str, str]) -> SegmentPlan:
        """Return the plan without segments that cannot begin. Args: refused, why, by name.

        Raises: OperatorError if no stream is left.
        """
        plan = replace(self, found=tuple(one.without(refused) for one in self.found))
        if refused and not any(one.running for one in plan.found):
            raise OperatorError(f"stream {'; '.join(plan.refused)}")
        return plan

    def leaving(self, halted: Container[str]) -> SegmentPlan:
        """Return the plan without streams that do not run: no end is stored for them."""
        pairs = zip(self.configured.streams, self.found, strict=True)
        kept = [(stream, one) for stream, one in pairs if stream.name not in halted]
        configured = replace(self.configured, streams=tuple(stream for stream, _ in kept))
        return replace(self, configured=configured, found=tuple(one for _, one in kept))

    def lines(self) -> list[str]:
        """Return a line for each segment that is to begin: its changes, and when."""
        return [line for one in self.found if (line := self._line(one)) is not None]

    def log(self) -> None:
        """Log the changes and when they hold, and streams that end without a next segment."""
        for line in (*self.lines(), *self.refused, *self.abandoned):
            log.warning("stream %s", line)

    async def is_overtaken(self, store: Store) -> bool:
        """Return whether another worker has meanwhile opened a segment that this one is about to begin."""
        return any([await store.load(one.segment.name) is not None for one in self.due])

    async def store_due(self, store: Store) -> Settings | None:
        """Store the due beginnings; return the settings to run; None: another worker stored others.

        It cannot be taken back, so the caller makes all checks of a start before (``check_streams``).
        Guarantee: the end of the segment before is stored before a segment is in the ledger.
        """
        late = list[NextSegment]()
        for following in self.due:
            before = following.before
            if await store.load(before.name) is None:
                continue  # its own loops store the end when they open it
            until_bin = int(before.declared.time.binning.bin_of([following.edge_us])[0])
            late_to_next = not before.declared.source.origins  # else what is late counts in the next segment
            reply = await store.end_at(before.name, until_bin, late_to_next)
            if reply in (Reply.DONE, Reply.ALREADY):
                continue
            if reply is not Reply.SEALED:
                return None
            late.append(following)
            log.warning("stream %s", following.too_late())
        return self._settings([one for one in self.due if one not in late])

    async def until_next(self, running: Settings, clock: Clock) -> None:
        """Wait until the beginning of a segment is to be stored; for ever if none is wanted.

        Args: running, the segments that run now. A beginning that came too late for its instant is tried
            again later. clock, of the store: a worker whose clock is wrong stores no end.
        """
        names, again_us = {stream.name for stream in running.streams}, self.now_us + _AGAIN_US
        wanted = [one for one in self.following if one.segment.name not in names]
        ahead = [again_us if one.is_due(self.now_us) else one.stores_us for one in wanted]
        while ahead:
            left_us = 1_000_000
            with suppress(OSError):  # the loops wait for the store and its clock, and say so
                left_us = min(ahead) - await clock.now_us()
            if left_us <= 0:
                return
            await asyncio.sleep(min(left_us / 1e6, _LONGEST_SLEEP_S))
        await asyncio.Event().wait()

    def _line(self, one: Segments) -> str | None:
        if one.next is None:
            return one.coming(self.now_us)
        facts = facts_in_words(one.next.before.declared, one.next.wanted)
        return one.next.line(facts or "the same settings", self.now_us)

    def _settings(self, beginning: Sequence[NextSegment], *, with_ended: bool = False) -> Settings:
        """Return the settings if these segments begin; all segments of a stream write to one topic."""
        outputs = {output.stream: output for output in self.configured.outputs}
        streams, ended = list[StreamSettings](), set[str]()
        for stream, one in zip(self.configured.streams, self.found, strict=True):
            running = one.beginning(one.next if one.next in beginning else None)
            ended |= {segment.name for segment in one.ended}
            for segment in (*one.ended, *running) if with_ended else running:
                # The operator has accepted sums for the first segment, and edits the same stream.
                accept = stream.accept if segment.name == stream.name else ACCEPTED
                own = replace(stream, declared=segment.declared, until_us=segment.until_us, accept=accept)
                streams.append(replace(own, name=segment.name))
                if (output := outputs.get(stream.name)) is not None:
                    outputs[segment.name] = replace(output, stream=segment.name)
        return replace(
            self.configured,
            streams=tuple(streams),
            outputs=tuple(outputs.values()),
            ended=frozenset(ended),
        )


async def until_begun_elsewhere(running: Settings, store: Store) -> set[str]:
    """Wait until another worker has begun a segment that this one does not run; return its streams.

    A worker that ran on without it would keep the partitions for which the segment waits.
    """
    newest = {one.base: one.number for one in sorted(running.streams, key=lambda one: one.number)}
    sources = tuple(dict.fromkeys(sources_of(running)))
    every_s = min(_LONGEST_SLEEP_S, max(_LOOK_S, _LOOK_S_PER_LEDGER * len(sources)))
    while True:
        await asyncio.sleep(every_s)
        begun = set[str]()
        with suppress(OSError):
            for source in sources:
                for name in {entry.stream for entry in await store.ledger(source)}:
                    is_later = number_of(name) > newest.get(base_of(name), number_of(name))
                    if is_later and await store.load(name) is not None:  # its settings are known
                        begun.add(name)
        for name in sorted(begun):
            log.warning(
                "stream %s: another worker began its generation %d; this worker goes on with it until it "
                "starts again with its own configuration",
                *(base_of(name), number_of(name)),
            )
        if begun:
            return {base_of(name) for name in begun}


def sources_of(settings: Settings) -> Iterable[str]:
    """Yield the name of each ledger that the configuration's sources have."""
    return (name for stream in settings.streams for name in all_ledgers_of(stream, settings))
