"""The table that decides a stream's segments, from the known ones, the configuration and the time.

A stream is a sequence of segments, each with its settings. Nothing else decides which of them run, which one
begins next, and where: no adapter and no record takes part.

| the newest known segment                    | the configuration         | decision                    |
|---------------------------------------------|---------------------------|-----------------------------|
| is of a replay, is unknown here, or history | any                       | runs as configured          |
| ends for a next one that was left           | is the same, has no until | as stored; the next begins  |
| any other                                   | is the same               | runs as configured          |
| ended for good, or goes on under a new name | differs                   | runs as configured          |
| any                                         | differs, has `time.until` | runs as configured          |
| any                                         | differs in fixed facts    | runs as configured          |
| any                                         | differs, has no edge      | runs as stored; a refusal   |
| any                                         | differs                   | runs as stored to the edge, |
|                                             |                           | where the next one begins   |

"As configured" is refused later, in one line, where the configuration differs from what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from stream_app.core.costs import end_of
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.records import LedgerEntry, StreamState
from stream_app.core.segments.edges import common_edge, ends_ahead, needs_segment, never_meet
from stream_app.core.segments.history import read_strategy
from stream_app.core.segments.names import base_of, by_stream, generation, next_name, number_of
from stream_app.core.strategy import Strategy

LEAD_US = 300_000_000  # before a segment begins, its beginning is stored; it cannot be taken back then
STORED = "this is stored, and it cannot be taken back"


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a stream. Args: name, for example ``clicks@2``; until_us, its end; None: it has none."""

    name: str
    declared: Declaration
    until_us: int | None = None


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """A segment that began, or whose beginning is stored.

    Args:
        state: as stored; None: the store has lost the segment.
        strategy: from the store or the witness; None: only the ledger knows the segment.
        first_us: where it begins.
        is_shown: whether readers see all rows, and retention will remove no more of its epochs.
    """

    name: str
    state: StreamState | None = None
    strategy: Strategy | None = None
    first_us: int | None = None
    is_shown: bool = False

    @property
    def is_history(self) -> bool:
        """Whether nobody counts it: it was retired or imported."""
        return self.state is not None and read_strategy(self.state.strategy)[1] is not None

    @property
    def is_over(self) -> bool:
        """Whether this segment has counted to its end."""
        return self.state is not None and self.state.is_over

    @property
    def ends_for_next(self) -> bool:
        """Whether the store holds an end of this segment at which the next one should begin."""
        return self.end_us is not None and self.state is not None and self.state.late_from is not None

    @property
    def end_us(self) -> int | None:
        """The end of this segment in the store; None if it has no end there."""
        if self.state is None or self.strategy is None or self.state.until_bin is None:
            return None
        return self.strategy.declared.time.binning.start_us(self.state.until_bin)


@dataclass(frozen=True, slots=True)
class NextSegment:
    """The segment that is wanted next.

    Args:
        before: the segment that ends where this one begins.
        edge_us: this instant.
        is_stored: whether the store has the end of the segment before.
        wanted: the configured settings, without the instant.
        is_late: whether the segment before counts nothing more, and readers see its rows.
    """

    segment: Segment
    before: Segment
    edge_us: int
    is_stored: bool
    wanted: Declaration
    is_late: bool = False

    @property
    def stores_us(self) -> int:
        """When the beginning is stored: until then the old settings can be put back."""
        return self.edge_us - LEAD_US

    def is_due(self, now_us: int) -> bool:
        """Return whether the beginning is stored, or should be stored now."""
        return self.is_stored or now_us >= self.stores_us

    def line(self, facts: str, now_us: int) -> str:
        """Return a line: the changes, and until when they can be taken back. Args: facts, the changes."""
        until = f"until {format_instant(self.stores_us)}, the old settings can be put back"
        if self.is_stored:
            until = STORED
        elif self.is_due(now_us):
            until = "a start stores this now, and it cannot be taken back"
        return f"{_from(self.segment.name, self.edge_us)}: {facts}; {until}"

    def too_late(self) -> str:
        """Return the message for a segment whose predecessor has counted bins after the edge already."""
        number, edge = number_of(self.segment.name), format_instant(self.edge_us)
        return (
            f"{base_of(self.segment.name)}: generation {number} cannot begin at {edge}, because bins from "
            "there on are counted already; the settings so far hold, and the worker chooses a later instant"
        )


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments of one configured stream.

    Args:
        running: those that a worker runs, oldest first.
        ended: earlier ones that count nothing more, and whose rows readers see.
        next: the one that is wanted; None: the configuration is that of the newest one.
        abandoned_us: where the newest one ends although no next segment is configured; None: it does not.
        refused: a line about a segment that cannot begin, with the consequence; None: there is none.
        is_reserved: whether the newest one, not the first, has an entry in the ledger and nothing else.
    """

    running: tuple[Segment, ...]
    ended: tuple[Segment, ...] = ()
    next: NextSegment | None = None
    abandoned_us: int | None = None
    refused: str | None = None
    is_reserved: bool = False

    @property
    def newest(self) -> str:
        """The name of the newest one that is known."""
        return self.running[-1].name

    @property
    def stream(self) -> str:
        """The stream's name in the configuration."""
        return base_of(self.newest)

    def beginning(self, following: NextSegment | None) -> tuple[Segment, ...]:
        """Return the segments that run if the next one begins; None: it does not."""
        if following is None:
            return self.running
        *earlier, _ = self.running
        return *earlier, replace(following.before, until_us=following.edge_us), following.segment

    def without(self, refused: Mapping[str, str]) -> Segments:
        """Return these segments without the first refused segment and all later ones.

        The segment before runs on; if its end is stored, it runs to its end.
        Args: refused, the reasons, by the segment's name.
        """
        for place, segment in enumerate(self.running):
            if segment.name in refused:
                line = _cannot_begin(segment.name, refused[segment.name], segment.declared.time.first_us)
                return Segments(self.running[:place], self.ended, refused=line)
        if self.next is None or self.next.segment.name not in refused:
            return self
        name, end_us = self.next.segment.name, self.next.edge_us if self.next.is_stored else None
        running, ended = self.running, self.ended
        if self.next.is_late:
            running, ended = running[:-1], (*ended, *running[-1:])
        return Segments(running, ended, refused=_cannot_begin(name, refused[name], end_us))

    def coming(self, now_us: int) -> str | None:
        """Return a line about the newest segment if it is stored but has not begun; None otherwise."""
        newest = self.running[-1] if self.running else None
        first_us = None if newest is None else newest.declared.time.first_us
        if newest is None or number_of(newest.name) == 1 or first_us is None or first_us <= now_us:
            return None
        return f"{_from(newest.name, first_us)}; {STORED}"


def segments_of(
    configured: Segment,
    known: Sequence[KnownSegment],
    entries: Sequence[LedgerEntry],
    now_us: int,
) -> Segments:
    """Return the segments of a configured stream, by the table above.

    Args: configured, under the stream's own name; known, oldest first, at least one; entries, of the source's
        ledgers, about this stream, those that continue it, and the one before it.
    """
    if configured.declared.source.replay is not None:
        return Segments((configured,))
    *earlier, newest = known
    running, ended = list[Segment](), list[Segment]()
    for one, following in zip(earlier, known[1:], strict=True):
        if one.strategy is not None and not one.is_history:
            stored = Segment(one.name, one.strategy.declared, following.first_us)
            (ended if one.is_over and one.is_shown else running).append(stored)
    then, end_us = newest.strategy, newest.end_us
    as_configured = replace(
        configured, name=newest.name, declared=_begun_as(configured.declared, newest, entries)
    )
    is_reserved = then is None and bool(earlier)
    segments = Segments((*running, as_configured), tuple(ended), is_reserved=is_reserved)
    is_same = then is not None and then.declared == as_configured.declared
    is_followed = configured.until_us is not None or end_of(entries, newest.name) is not None
    # A worker stored the end and then no ledger entry: it died, or its settings were taken back.
    is_left = newest.ends_for_next and not is_followed
    if then is None or newest.is_history or (is_same and not is_left):
        return segments if is_followed else replace(segments, abandoned_us=end_us)
    wanted = as_configured.declared
    if wanted.successor_of is None:  # else the stream before ends at ``time.first``
        wanted = beginning_at(wanted, then.declared.time.first_us)
    # A stream under another name continues it.
    continued = any(one.successor_of == newest.name and one.base != configured.name for one in entries)
    has_ended_for_good = newest.is_over and not newest.ends_for_next
    is_over = configured.until_us is not None or has_ended_for_good or continued
    if is_over or not (is_same or needs_segment(then.declared, wanted)):
        return segments
    before = Segment(newest.name, then.declared)
    name = next_name(newest.name)
    edge_us = common_edge(then, as_configured.declared, ends_ahead(then, newest.state, now_us))
    if edge_us is None:
        _, planned_end = next(ends_ahead(then, newest.state, now_us))
        why = never_meet(configured.name, then.declared.time.binning.start_us(planned_end))
        return Segments((*running, before), tuple(ended), refused=_cannot_begin(name, why, end_us))
    declared = structs.replace(beginning_at(as_configured.declared, edge_us), successor_of=newest.name)
    is_late = newest.is_over and newest.is_shown
    coming = NextSegment(Segment(name, declared), before, edge_us, end_us is not None, wanted, is_late)
    return Segments((*running, before), tuple(ended), coming)


def beginning_at(declared: Declaration, first_us: int | None) -> Declaration:
    """Return settings of a segment that begins at an instant."""
    return structs.replace(declared, time=structs.replace(declared.time, first_us=first_us))


def _begun_as(declared: Declaration, newest: KnownSegment, entries: Sequence[LedgerEntry]) -> Declaration:
    """Return the configured settings with the beginning of the segment that has them."""
    number, base = number_of(newest.name), base_of(newest.name)
    if number > 1:
        before = generation(base, number - 1)
        return structs.replace(beginning_at(declared, newest.first_us), successor_of=before)
    if declared.successor_of is None:
        return declared
    stored = None if newest.strategy is None else newest.strategy.declared.successor_of
    if stored is None or base_of(stored) != declared.successor_of:
        own = by_stream(entry.stream for entry in entries).get(declared.successor_of)
        stored = own[-1] if own else declared.successor_of  # it succeeds the newest segment
    return structs.replace(declared, successor_of=stored)


def _from(name: str, edge_us: int) -> str:
    return f"{base_of(name)}: from {format_instant(edge_us)} on, as generation {number_of(name)}"


def _cannot_begin(name: str, why: str, end_us: int | None) -> str:
    """Return a line about a segment that cannot begin. Args: end_us, its predecessor's stored end."""
    then = "the settings so far hold" if end_us is None else f"the stream ends at {format_instant(end_us)}"
    return f"{base_of(name)}: generation {number_of(name)} cannot begin, so {then}: {why}"
