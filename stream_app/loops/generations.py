"""Which generations of a configured stream a worker runs, and where the next one begins.

Settings that no later epoch of a running stream may take begin with the stream's next generation: a stream
in the store, which is the successor of the one before (``ending.py``). The clock alone decides the instant.
Until shortly before it nothing is stored, so the old settings can be put back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from stream_app.config.plans import planned
from stream_app.config.settings import StreamSettings
from stream_app.core.declaration import Declaration
from stream_app.core.instants import format_instant
from stream_app.core.ledger import ACCEPTED
from stream_app.core.measurements import end_of
from stream_app.core.records import LedgerEntry, StreamState
from stream_app.core.segments.edges import common_edge, ends_ahead, never_meet
from stream_app.core.segments.history import read_strategy
from stream_app.core.segments.names import base_of, generation, number_of
from stream_app.core.segments.strategies import last_text
from stream_app.core.strategy import Strategy
from stream_app.loops.configured import facts_in_words, needs_generation, stored_strategy
from stream_app.ports import OperatorError, Store

LEAD_US = 300_000_000  # before a generation begins, its beginning is stored; it cannot be taken back then
_MOST_WITHOUT_ROWS = 2  # generations in a row that may have ended before they released anything
_STORED = "this is stored, and it cannot be taken back"


def _from(name: str, edge_us: int) -> str:
    return f"{base_of(name)}: from {format_instant(edge_us)} on, as generation {number_of(name)}"


@dataclass(frozen=True, slots=True)
class Next:
    """The generation that is wanted next.

    Args: before, the one that ends where it begins; edge_us, this instant; facts, what changes, in words;
        is_stored, whether the store has the end of the one before.
    """

    stream: StreamSettings
    before: StreamSettings
    edge_us: int
    facts: str
    is_stored: bool

    @property
    def stores_us(self) -> int:
        """When the beginning is stored: until then the old settings can be put back."""
        return self.edge_us - LEAD_US

    def is_due(self, now_us: int) -> bool:
        """Return whether the beginning is to be stored now, if it is not."""
        return self.is_stored or now_us >= self.stores_us

    def line(self, now_us: int) -> str:
        """Return what happens, and until when it can be taken back."""
        until = f"until {format_instant(self.stores_us)}, the old settings can be put back"
        if self.is_stored:
            until = _STORED
        elif self.is_due(now_us):
            until = "a start stores this now, and it cannot be taken back"
        return f"{_from(self.stream.name, self.edge_us)}: {self.facts}; {until}"

    def too_late(self) -> str:
        """Return what happens if the start took so long that the one before has counted beyond the edge."""
        number, edge = number_of(self.stream.name), format_instant(self.edge_us)
        return (
            f"{base_of(self.stream.name)}: generation {number} cannot begin at {edge}, because bins from "
            "there on are counted already; the settings so far hold, and the worker chooses a later instant"
        )


@dataclass(frozen=True, slots=True)
class Generations:
    """The generations of one configured stream.

    Args:
        running: those that a worker runs, oldest first.
        ended: earlier ones that count nothing more, and whose rows readers see.
        next: the one that is wanted; None: the configuration is that of the newest one.
        abandoned_us: where the newest one ends although nobody has said what follows; None: it does not.
        refused: a line about one that cannot begin, and what happens instead; None: there is none.
    """

    running: tuple[StreamSettings, ...]
    ended: tuple[StreamSettings, ...] = ()
    next: Next | None = None
    abandoned_us: int | None = None
    refused: str | None = None

    @property
    def newest(self) -> str:
        """The name of the newest one that is known."""
        return self.running[-1].name

    def without(self, refused: Mapping[str, str]) -> Generations:
        """Return these without a generation that cannot begin, and without those after it.

        The one before runs on; if its end is stored, it runs to its end. Args: refused, why, by name.
        """
        for place, stream in enumerate(self.running):
            if stream.name in refused:
                line = _cannot_begin(stream, refused[stream.name], stream.declared.time.first_us)
                return Generations(self.running[:place], self.ended, refused=line)
        if self.next is None or self.next.stream.name not in refused:
            return self
        stream, end_us = self.next.stream, self.next.edge_us if self.next.is_stored else None
        line = _cannot_begin(stream, refused[stream.name], end_us)
        return Generations(self.running, self.ended, refused=line)

    def lines(self, now_us: int) -> list[str]:
        """Return what begins after ``now_us``, and until when it can be taken back: a line, or none."""
        if self.next is not None:
            return [self.next.line(now_us)]
        for stream in self.running[-1:]:
            first_us = stream.declared.time.first_us
            if number_of(stream.name) > 1 and first_us is not None and first_us > now_us:
                return [f"{_from(stream.name, first_us)}; {_STORED}"]
        return []


def _cannot_begin(stream: StreamSettings, why: str, end_us: int | None) -> str:
    """Return what happens without a generation. Args: end_us, the stored end of the one before, if any."""
    then = "the settings so far hold" if end_us is None else f"the stream ends at {format_instant(end_us)}"
    return f"{base_of(stream.name)}: generation {number_of(stream.name)} cannot begin, so {then}: {why}"


@dataclass(frozen=True, slots=True)
class _Known:
    """A generation that began, or whose beginning is stored. Args: strategy, None: only the ledger has it."""

    name: str
    state: StreamState | None
    strategy: Strategy | None
    first_us: int | None


@dataclass(frozen=True, slots=True)
class Released:
    """What its witness says of a generation that has released.

    Args: since, the start of its first row; notes, the settings of generations up to it, by name, if the
        witness is a topic.
    """

    since: str
    notes: Mapping[str, Declaration]


# What the witness of a generation says; None: the generation has released nothing.
Witnessed = Callable[[str], Awaitable[Released | None]]


async def generations_of(
    store: Store,
    stream: StreamSettings,
    notes: Mapping[str, Declaration],
    entries: Sequence[LedgerEntry],
    now_us: int,
    witnessed: Witnessed,
) -> Generations:
    """Return the generations of a configured stream. It stores nothing.

    Guarantee: a generation that has released is known, also if the store and the notes have lost it.
    Args: notes, what this machine noted of generations, by name: with it a lost store's are known; entries,
        of the source's ledger, and of the one outside the store, about this stream or the one before it.
    Raises: OperatorError, one line, if the settings cannot follow those of the newest generation, or those of
        a generation that has released are lost.
    """
    if stream.declared.source.replay is not None:
        return Generations((stream,))
    known = await _known(store, stream, notes, entries, witnessed)
    *earlier, newest = known
    running, ended = list[StreamSettings](), list[StreamSettings]()
    for one, following in zip(earlier, known[1:], strict=True):
        if one.strategy is not None and not _is_history(one.state):
            over = await _is_over(store, one, stream.keep_us)
            (ended if over else running).append(_as_stored(stream, one, following.first_us))
    configured = _as_configured(stream, newest, entries)
    then = newest.strategy
    if then is None or _is_history(newest.state) or then.declared == configured.declared:
        abandoned_us = None if stream.until_us is not None else _end_without_successor(newest, entries)
        return Generations((*running, configured), tuple(ended), abandoned_us=abandoned_us)
    is_over = stream.until_us is not None or _has_stopped(newest)
    if is_over or _successor_of_another_name(newest.name, stream.name, entries):
        return Generations((*running, configured), tuple(ended))  # the loops refuse what may not change
    wanted = planned(_begun_as(then, configured))
    if not needs_generation(then, wanted):
        return Generations((*running, configured), tuple(ended))
    before = _as_stored(stream, newest, until_us=None)
    coming = _named(stream, generation(stream.name, number_of(newest.name) + 1))
    end_us = _stored_end(newest)
    edge_us = common_edge(then, configured.declared, ends_ahead(then, newest.state, now_us))
    if edge_us is None:
        _, planned_end = next(ends_ahead(then, newest.state, now_us))
        planned_us = then.declared.time.binning.start_us(planned_end)
        line = _cannot_begin(coming, never_meet(stream.name, planned_us), end_us)
        return Generations((*running, before), tuple(ended), refused=line)
    time = structs.replace(configured.declared.time, first_us=edge_us)
    declared = structs.replace(configured.declared, time=time, successor_of=newest.name)
    facts = facts_in_words(then, wanted)
    wanted_next = Next(replace(coming, declared=declared), before, edge_us, facts, end_us is not None)
    return Generations((*running, before), tuple(ended), wanted_next)


async def _is_over(store: Store, one: _Known, keep_us: int | None) -> bool:
    """Return whether a generation has ended, and has no rows left to show and no old epochs to remove."""
    state = one.state
    if state is None or not _has_stopped(one):
        return False
    if await store.visible_seq(one.name) < state.seq:
        return False  # the worker that released its last rows died before it showed them
    oldest = None if keep_us is None else await store.oldest_epoch(one.name)
    return oldest is None or oldest.epoch == state.epoch.epoch


async def _known(
    store: Store,
    stream: StreamSettings,
    notes: Mapping[str, Declaration],
    entries: Sequence[LedgerEntry],
    witnessed: Witnessed,
) -> list[_Known]:
    """Return every generation that has begun, or whose beginning is stored, oldest first."""
    firsts: dict[int, int] = {}
    for entry in entries:
        if base_of(entry.stream) == stream.name:
            number = number_of(entry.stream)
            firsts[number] = min(entry.start_us, firsts.get(number, entry.start_us))
    known = list[_Known]()
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
        first_us = _noted_first(known[-1], note)
        if first_us is None:
            break
        known.append(await _look(store, stream, name, notes, first_us))
    return known


async def _with_witnessed(
    store: Store, base: str, notes: Mapping[str, Declaration], newest: int, witnessed: Witnessed
) -> tuple[Mapping[str, Declaration], dict[int, Released]]:
    """Return the notes with those of witnesses, and the generations whose witness was asked and has rows.

    The witnesses of the generations after the newest one are always asked: a store that was set back, and a
    machine without notes, do not know that they began.
    Args: newest, the number of the newest generation that a ledger knows.
    """
    names = [generation(base, number) for number in range(1, newest + 1)]
    lacks = newest > 1 and any([name not in notes and await store.load(name) is None for name in names])
    found, released = dict(notes), dict[int, Released]()
    number, last = 2 if lacks else newest + 1, newest
    while number <= last + _MOST_WITHOUT_ROWS + 1:
        if (said := await witnessed(generation(base, number))) is not None:
            released[number], last = said, max(last, number)
            found |= said.notes  # a later generation's witness has the last settings of those before it
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
) -> _Known:
    state, note = await store.load(name), notes.get(name)
    if state is not None:
        strategy = stored_strategy(name, last_text(state.strategy))
        if state.change is not None:
            declared = strategy.declared.with_arrival(state.change.after)
            strategy = replace(strategy, declared=declared)
    elif note is not None:
        if number_of(name) > 1:
            note = structs.replace(note, time=structs.replace(note.time, first_us=first_us))
        strategy = planned(replace(stream, name=name, declared=note))
    else:
        return _Known(name, None, None, first_us)
    # The id of a log is known once it is open. The loops compare it with the stored one.
    log = structs.replace(strategy.declared.source, state_id=None, cluster_id=None, topic_id=None)
    declared = structs.replace(strategy.declared, source=log)
    return _Known(name, state, replace(strategy, declared=declared), declared.time.first_us)


def _noted_first(before: _Known, note: Declaration) -> int | None:
    """Return where a generation begins of which there is a note only; None: its beginning was not stored.

    Another worker may have stored another instant, or the generation before has counted beyond it.
    """
    state, first_us = before.state, note.time.first_us
    if state is None or before.strategy is None or first_us is None:
        return first_us
    binning = before.strategy.declared.time.binning
    if state.until_bin is not None:
        return binning.start_us(state.until_bin)
    return first_us if state.sealed_bin < int(binning.bin_of([first_us])[0]) else None


def _as_stored(stream: StreamSettings, one: _Known, until_us: int | None) -> StreamSettings:
    """Return a generation with the settings that are stored; what is no promise is as configured."""
    assert one.strategy is not None
    return replace(_named(stream, one.name), declared=one.strategy.declared, until_us=until_us)


def _named(stream: StreamSettings, name: str) -> StreamSettings:
    """Return a stream under a generation's name: the operator has accepted sums for the first one."""
    return replace(stream, name=name, accept=stream.accept if number_of(name) == 1 else ACCEPTED)


def _as_configured(stream: StreamSettings, one: _Known, entries: Sequence[LedgerEntry]) -> StreamSettings:
    """Return a generation with the configured settings, and with its own beginning."""
    declared, then = stream.declared, one.strategy
    if number_of(one.name) > 1:
        before = generation(stream.name, number_of(one.name) - 1)
        time = structs.replace(declared.time, first_us=one.first_us)
        declared = structs.replace(declared, successor_of=before, time=time)
    elif declared.successor_of is not None:
        stored = None if then is None else then.declared.successor_of
        if stored is None or base_of(stored) != declared.successor_of:
            stored = _newest_in(entries, declared.successor_of)
        declared = structs.replace(declared, successor_of=stored)
    return replace(_named(stream, one.name), declared=declared)


def _begun_as(then: Strategy, stream: StreamSettings) -> StreamSettings:
    """Return settings with the stored ``time.first``: it says where the first generation began, no other."""
    if stream.declared.successor_of is not None:
        return stream  # the stream before ends there
    time = structs.replace(stream.declared.time, first_us=then.declared.time.first_us)
    return replace(stream, declared=structs.replace(stream.declared, time=time))


def _newest_in(entries: Sequence[LedgerEntry], base: str) -> str:
    """Return the newest generation of a stream that the ledger has: the one that another stream succeeds."""
    numbers = (number_of(entry.stream) for entry in entries if base_of(entry.stream) == base)
    return generation(base, max(numbers, default=1))


def _is_history(state: StreamState | None) -> bool:
    return state is not None and read_strategy(state.strategy)[1] is not None


def _has_stopped(one: _Known) -> bool:
    """Return whether a generation has counted to its end. If it is the newest, it has ended for good."""
    state = one.state
    return state is not None and state.stopped and state.has_ended


def _successor_of_another_name(name: str, base: str, entries: Sequence[LedgerEntry]) -> bool:
    return any(entry.successor_of == name and base_of(entry.stream) != base for entry in entries)


def _end_without_successor(newest: _Known, entries: Sequence[LedgerEntry]) -> int | None:
    """Return where the newest generation ends, if no stream is known that goes on there."""
    return None if end_of(entries, newest.name) else _stored_end(newest)


def _stored_end(one: _Known) -> int | None:
    """Return the end that the store has of a generation; None: it has none."""
    state, strategy = one.state, one.strategy
    if state is None or strategy is None or state.until_bin is None:
        return None
    return strategy.declared.time.binning.start_us(state.until_bin)
